package lease

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// request is what an Apply with a request id was about.
type request struct {
	finger [sha256.Size]byte
	// done is closed when that Apply has ended; fault is the id that it made then, and
	// ended when that fault did.
	done  chan struct{}
	fault string
	ended time.Time
}

// How long the end of a fault is remembered for replays, and of how many: those that
// ended first are forgotten first. An entry has some 300 bytes. All are looked through
// every forgetEvery, or when there are too many.
const (
	requestMemory = time.Hour
	maxRequests   = 4096
	forgetEvery   = time.Minute
)

// requestKey is what a request is known by: each owner has ids of his own.
func requestKey(s fault.Spec) string { return s.Whose() + "\x00" + s.RequestID }

// claim takes the request id of s for a call, which ends by calling made with the id of
// the fault that came of it, whole or not, empty for none. When another call has it, that one's answer
// is found, waited for as long as ctx lasts; when it failed, the id is free again. Another
// request under the same id is refused at once, with a *qdisc.FieldError.
func (m *Manager) claim(ctx context.Context, s fault.Spec) (f fault.Fault, found bool, made func(id string), err error) {
	if s.RequestID == "" {
		return f, false, func(string) {}, nil
	}
	finger, key := fingerprint(s), requestKey(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetRequests()
	if r := m.requests[key]; r != nil && r.forgotten() {
		delete(m.requests, key)
	}
	for r := m.requests[key]; r != nil; r = m.requests[key] {
		if r.finger != finger {
			return f, false, nil, &qdisc.FieldError{Field: "request_id", Value: s.RequestID, Want: "an id of its own for each different request"}
		}
		if r.fault != "" {
			f, err = m.replay(s.RequestID, r)
			return f, true, nil, err
		}
		m.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			err = fmt.Errorf("apply: waiting for the call with the same request id: %w", context.Cause(ctx))
		}
		m.mu.Lock()
		if err != nil {
			return f, false, nil, err
		}
	}
	r := &request{finger: finger, done: make(chan struct{})}
	m.requests[key] = r
	return f, false, func(id string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.fault = id; id == "" {
			delete(m.requests, key)
		} else if m.held[id] == nil { // it has ended already
			r.ended = time.Now()
		}
		close(r.done)
	}, nil
}

// replay is the answer to a request that made a fault. The caller holds the lock.
func (m *Manager) replay(id string, r *request) (fault.Fault, error) {
	h := m.held[r.fault]
	if h == nil {
		return fault.Fault{}, fmt.Errorf("apply: request id %q made fault %s, which has ended", id, r.fault)
	}
	if !h.whole {
		return fault.Fault{}, fmt.Errorf("apply: request id %q made fault %s, and the agent failed before it was whole; 'netemctl clear %s' ends it", id, r.fault, r.fault)
	}
	return h.fault, nil
}

// admitted is the id of h where it stands in the books.
func (m *Manager) admitted(h *held) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h == nil || m.held[h.fault.ID] != h {
		return ""
	}
	return h.fault.ID
}

// forgotten reports whether the fault ended too long ago.
func (r *request) forgotten() bool { return !r.ended.IsZero() && time.Since(r.ended) > requestMemory }

// forgetRequests forgets those whose fault ended long ago, and makes room for one more
// where it can. The caller holds the lock.
func (m *Manager) forgetRequests() {
	if len(m.requests) < maxRequests && time.Since(m.forgot) < forgetEvery {
		return
	}
	m.forgot = time.Now()
	var over []string
	for key, r := range m.requests {
		switch {
		case r.ended.IsZero():
		case r.forgotten():
			delete(m.requests, key)
		default:
			over = append(over, key)
		}
	}
	if len(m.requests) < maxRequests {
		return
	}
	// An eighth more than needed, so that not every call has to sort.
	slices.SortFunc(over, func(a, b string) int { return m.requests[a].ended.Compare(m.requests[b].ended) })
	for _, key := range over[:min(len(over), len(m.requests)-maxRequests+maxRequests/8)] {
		delete(m.requests, key)
	}
}

// remember takes in the request that made a fault of another life, so that one that is
// repeated is answered as it would have been there. The caller holds the lock.
func (m *Manager) remember(f fault.Fault) {
	key := requestKey(f.Spec)
	if f.Spec.RequestID == "" || m.requests[key] != nil {
		return
	}
	m.forgetRequests()
	r := &request{finger: fingerprint(f.Spec), fault: f.ID, done: make(chan struct{})}
	close(r.done)
	if m.held[f.ID] == nil {
		r.ended = time.Now()
	}
	m.requests[key] = r
}

// fingerprint is the same for two specs of an owner that ask for the same, however long they
// wait, and whatever he is called.
func fingerprint(s fault.Spec) [sha256.Size]byte {
	packet := "-"
	if s.Packet != nil {
		packet = fmt.Sprintf("%+v", *s.Packet)
	}
	if s.PacketFrom != nil {
		packet += fmt.Sprintf(" %+v", *s.PacketFrom)
	}
	if s.Schedule != nil { // what it has in force now is not what was asked for
		text, _ := json.Marshal(s.Schedule) // it never fails for what is valid
		packet = string(text)
	}
	selector := "-"
	if s.Selector != nil {
		selector = fmt.Sprintf("%+v", *s.Selector)
	}
	rule := "-"
	if s.Content != nil {
		rule = s.Content.Key()
	}
	s.PacketFrom, s.Schedule = nil, nil
	s.Packet, s.Content, s.Selector, s.SSHConnection, s.Owner, s.OwnerKey, s.Process, s.Wait = nil, nil, nil, "", "", "", "", 0
	return sha256.Sum256(fmt.Appendf(nil, "%+v %s %s %s", s, packet, rule, selector))
}
