package agent

import (
	"cmp"
	"log/slog"
	"net"
	"net/netip"

	"google.golang.org/grpc/codes"

	"netemd/internal/audit"
)

// openRefusals makes the book of what is refused before it comes to anything, which tells the
// log and, where an audit log is configured, a file beside that.
func (a *Agent) openRefusals() (err error) {
	c := a.cfg.Settings.Audit
	if a.refused, err = openLog(c, audit.RefusedPath(c.Path)); err != nil {
		return err
	}
	a.refusals = audit.NewRefusals(func(r audit.Record) {
		a.cfg.Log.Warn(refusalText(r), refusalWords(r)...)
		a.writeTo(a.refused, r)
	})
	return nil
}

func (a *Agent) closeRefusals() error {
	if a.refusals != nil {
		a.refusals.Close()
	}
	return a.refused.Close()
}

// refuseCall tells a call that was refused before anything was done for it.
func (a *Agent) refuseCall(c *call, err error) { a.refusals.Add(c.peer.key(), c.record(err)) }

// refuseConnection tells a connection that was not let in, of a peer that may be unknown.
func (a *Agent) refuseConnection(info peerInfo, err error) {
	r := audit.Record{Actor: cmp.Or(info.owner, unknownOwner), Peer: info.audit(), Verb: verbConnect, Code: codeOf(err), Error: err.Error()}
	if info.owner == "" {
		r.Code = codes.Unauthenticated.String() // whoever it is
	}
	a.refusals.Add(info.key(), r)
}

// unknownOwner is who a peer is that has not shown it, and verbConnect what it wanted.
const (
	unknownOwner = "unknown"
	verbConnect  = "connect"
)

// key is by what a peer's refusals are counted: who it is, or the network that it came from,
// of which a host has a whole one with IPv6.
func (p peerInfo) key() string {
	if p.owner != "" && p.owner != unknownOwner {
		return p.owner
	}
	host, _, err := net.SplitHostPort(p.address)
	if err != nil {
		return p.address
	}
	at, err := netip.ParseAddr(host)
	if err != nil || at.Unmap().Is4() {
		return host
	}
	const network = 64
	prefix, err := at.WithZone("").Prefix(network)
	if err != nil {
		return host
	}
	return prefix.String()
}

func refusalText(r audit.Record) string {
	switch r.Verb {
	case audit.Refused:
		return "more was refused"
	case verbConnect:
		return "a client was refused"
	}
	return "call refused"
}

func refusalWords(r audit.Record) []any {
	words := []any{"by", r.Actor, "code", r.Code, "err", r.Error}
	if r.Method != "" {
		words = append(words, "method", r.Method)
	}
	if p := r.Peer; p != nil && p.Address != "" {
		words = append(words, "address", p.Address)
	} else if p != nil {
		words = append(words, "pid", p.PID)
	}
	if r.Count > 0 {
		words = append(words, slog.Time("first", r.First), slog.Time("last", r.Last))
	}
	return words
}
