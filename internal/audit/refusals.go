package audit

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Refused is the Verb of the record that counts refusals which are not told one by one.
const Refused = "refused"

// Singly is how many refusals of a peer are told one by one in a minute.
const Singly = 20

const (
	// window is how long the refusals of a peer are counted together.
	window = time.Minute
	// maxPeers is how many peers are counted by themselves; further ones are one, several,
	// so that many addresses or users cost no more than that.
	maxPeers = 64
	several  = "several"
)

// Refusals bounds what the refusals of a peer take: the first Singly of a minute are told one
// by one, and the others as one record at its end, which says how many they were, when the
// first and the last of them was, and what that was. It is safe for concurrent use.
type Refusals struct {
	tell func(Record)

	mu     sync.Mutex
	peers  map[string]*counted
	closed bool
}

// counted are the refusals of one peer in one window.
type counted struct {
	told  int
	rest  Record // the last that was not told, with Count, First and Last
	timer *time.Timer
}

// NewRefusals makes one that tells by calling tell, also from other goroutines.
func NewRefusals(tell func(Record)) *Refusals {
	return &Refusals{tell: tell, peers: map[string]*counted{}}
}

// Add takes a refusal of a peer, and reports whether it was told by itself.
func (r *Refusals) Add(peer string, rec Record) (told bool) {
	if told = r.count(peer, rec); told {
		r.tell(rec)
	}
	return told
}

func (r *Refusals) count(peer string, rec Record) (tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return true // nobody would tell it later
	}
	c := r.peers[peer]
	if c == nil && len(r.peers) >= maxPeers {
		peer = several
		c = r.peers[peer]
	}
	if c == nil {
		c = &counted{timer: time.AfterFunc(window, func() { r.end(peer) })}
		r.peers[peer] = c
	}
	if c.told < Singly {
		c.told++
		return true
	}
	now := time.Now().UTC()
	rec.Count, rec.First, rec.Last = c.rest.Count+1, c.rest.First, now
	if rec.Count == 1 {
		rec.First = now
	}
	if peer == several {
		rec.Actor, rec.Peer = several, nil
	}
	c.rest = rec
	return false
}

// end tells what was counted of a peer.
func (r *Refusals) end(peer string) {
	r.mu.Lock()
	c := r.peers[peer]
	delete(r.peers, peer)
	r.mu.Unlock()
	if c != nil && c.rest.Count > 0 {
		r.tell(c.rest.counts())
	}
}

// counts is the record of those that were not told.
func (r Record) counts() Record {
	r.Error = fmt.Sprintf("%d more; the last (%s %s): %s", r.Count, r.Verb, r.Target, r.Error)
	r.Verb, r.Target, r.Request, r.Faults, r.Duration = Refused, "", "", nil, 0
	return r
}

// Close tells what was counted. It is safe to call twice; later refusals are told at once.
func (r *Refusals) Close() {
	r.mu.Lock()
	r.closed = true
	var open []string
	for peer, c := range r.peers {
		c.timer.Stop()
		open = append(open, peer)
	}
	r.mu.Unlock()
	for _, peer := range open {
		r.end(peer)
	}
}

// RefusedPath is the file of the refusals beside a log: "audit.refused.jsonl" beside
// "audit.jsonl".
func RefusedPath(path string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + ".refused" + ext
}
