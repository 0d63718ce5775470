package lease

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// RequestEngine carries out faults of requests at a target's http-proxy. The methods are
// idempotent and safe for concurrent use.
type RequestEngine interface {
	// SetRequests makes faults all that happens to requests there, in that order, and each until
	// its Expires, which the proxy enforces by itself. Those that are in force go on counting.
	SetRequests(ctx context.Context, t target.Target, faults []fault.Fault) error
	// ReadRequests returns those in force, in order: ID, Request and Counters, State Expired of
	// one that has ended by itself. The error is fs.ErrNotExist when there is no proxy any more.
	ReadRequests(ctx context.Context, t target.Target) ([]fault.Fault, error)
}

// requestReason is why the engine is that.
const requestReason = "requests pass the target's http-proxy"

// drawSeed is the seed of a fault of requests that was given none: never 0, and one that a number
// in JSON holds exactly.
func drawSeed() uint64 {
	const bits = 53
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return max(1, binary.LittleEndian.Uint64(b[:])>>(64-bits))
}

// withSeed gives a fault of requests its seed.
func withSeed(s fault.Spec) fault.Spec {
	if s.Request != nil && s.Request.Seed == 0 {
		r := *s.Request
		r.Seed = drawSeed()
		s.Request = &r
	}
	return s
}

// requestSlot is the http-proxy of a target, which others may have, too.
func requestSlot(t target.Target) slot {
	proxy := t.Lab + " " + t.HTTPProxy.String()
	return slot{key: "requests " + proxy, proxy: t.Name, requests: true, lane: "2 http-proxy " + proxy}
}

// requestLane is the one of a target.
func requestLane(target string) string { return "1 requests of target " + target }

// requestLanes are the ones of a fault of requests.
func (h *held) requestLanes() []string {
	keys := []string{requestLane(h.fault.Spec.Target)}
	for _, s := range h.slots {
		keys = append(keys, s.lane)
	}
	return keys
}

func (m *Manager) planRequests(h *held) error {
	if m.cfg.Requests == nil || !h.target.HTTPProxy.IsValid() {
		return fmt.Errorf("apply: target %s has no http-proxy for faults of requests: %w", h.fault.Spec.Target, errors.ErrUnsupported)
	}
	h.fault.Engine, h.fault.EngineReason = fault.Application, requestReason
	h.fault.Placement = h.placement()
	h.fault.Warnings = h.warnings()
	return nil
}

// compareRequests is compare for the http-proxy: the counters are h's own.
func (m *Manager) compareRequests(ctx context.Context, h *held, on []fault.Fault, now *sight) (bool, error) {
	got, err := m.cfg.Requests.ReadRequests(ctx, h.target)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(got, func(f fault.Fault) bool { return f.ID == h.fault.ID })
	if i < 0 {
		now.reason = "nothing of it is in force in the http-proxy any more"
		return false, nil
	}
	now.counters = now.counters.Add(got[i].Counters)
	switch {
	case got[i].State == fault.Expired:
		now.reason = "it has ended by itself in the http-proxy"
	case !slices.EqualFunc(got, on, func(a, b fault.Fault) bool { return a.ID == b.ID }):
		now.reason = "the http-proxy has other faults"
	default:
		return true, nil
	}
	return false, nil
}

// setRequests makes on all that is in force in the http-proxy of h; one that is gone has none.
func (m *Manager) setRequests(ctx context.Context, h *held, on []fault.Fault) error {
	err := m.cfg.Requests.SetRequests(ctx, h.target, on)
	if len(on) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sameRequests names what both a and b do to a request that both could select.
func sameRequests(a, b *fault.Request) []string {
	if a == nil || b == nil || a.Apart(*b) {
		return nil
	}
	var both []string
	for _, k := range a.Kinds() {
		if slices.Contains(b.Kinds(), k) {
			both = append(both, k+" of the same requests")
		}
	}
	return both
}

// refuseRequestChange says that what a draw decides does not change in place.
func refuseRequestChange(id string) error {
	return &qdisc.FieldError{Field: "change", Value: id, Want: "a packet fault: one of requests draws by its seed from its beginning, and does not change in place; clear it and apply another"}
}
