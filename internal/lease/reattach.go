package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"netemd/internal/target"
	"netemd/qdisc"
)

// seekEvery is how often the target of a fault with Spec.Reattach is looked for while its
// place is gone. It is bounded by the looks at what is held, which are as frequent.
const seekEvery = 400 * time.Millisecond

// absence is when a fault was held and not in force since its place was gone.
type absence struct {
	times int
	total time.Duration
}

// seek looks for the target of h, whose place is gone, in the background. The caller holds
// the lock.
func (m *Manager) seek(h *held, now time.Time) {
	if r := &h.mending; r.over || m.closed || h.ending || now.Sub(r.last) < seekEvery || !now.Before(h.fault.Expires) {
		return
	}
	m.mendNow(h, now)
}

// sought notes why h is not where its target is: it is not there, or cannot be impaired. The
// note goes when it is. Where the lane is not to be had soon, the next look tells it.
func (m *Manager) sought(ctx context.Context, h *held, id string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	_, leave, busy := m.enterFault(ctx, id)
	if busy == nil {
		defer leave()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &h.mending
	r.running = false
	_, forGood := errors.AsType[goneForGood](err)
	switch {
	case err == nil:
		h.notes.repair = ""
	case forGood:
		r.over = true
		h.notes.repair = "it is not reattached: " + err.Error()
	default:
		h.notes.repair = "its target is looked for twice a second: " + err.Error()
	}
	if r.unsaid = busy != nil; !r.unsaid {
		h.fault.Warnings = h.warnings()
	}
}

// cameBack is the event of a fault that is in force again. The caller holds the lock.
func (r *mending) cameBack() string {
	if r.reattached {
		r.reattached = false
		return "reattached"
	}
	return "repaired"
}

// cameBack notes from when to when nothing was impaired, at most: since the last look that
// found h in force. Only who asked for a reattachment expects it. The caller holds the lock.
func (h *held) cameBack(why string) {
	if !h.fault.Spec.Reattach {
		return
	}
	from, to := h.inForce, time.Now()
	h.away.times++
	h.away.total += to.Sub(from)
	const clock = "15:04:05.000"
	h.notes.away = fmt.Sprintf("nothing was impaired from %s to %s (%s at most), when it was reattached: %s",
		from.Format(clock), to.Format(clock), qdisc.FormatDuration(to.Sub(from).Round(time.Millisecond)), why)
	if h.away.times > 1 {
		h.notes.away += fmt.Sprintf("; that was the %d. time, %s at most in all", h.away.times, qdisc.FormatDuration(h.away.total.Round(time.Millisecond)))
	}
	h.inForce = to
	h.fault.Warnings = h.warnings()
}

// goneForGood is of a target that cannot come back.
type goneForGood struct{ error }

func (g goneForGood) Unwrap() error { return g.error }

// sameProcess refuses what another process has by now: a number is given again. One that is
// reached through a process stands in the namespace that it was in.
func (h *held) sameProcess(after *held) error {
	if !h.throughProcess() {
		return nil
	}
	old, now := h.places(), after.places()
	if len(old) > 0 && len(now) > 0 && old[0].Cookie == now[0].Cookie {
		return nil
	}
	return goneForGood{fmt.Errorf("%s was reached through a process, and the number of one that ended is given again", h.fault.Spec.TargetName())}
}

// throughProcess reports whether what h is aimed at is said by the number of a process.
func (h *held) throughProcess() bool {
	ofProcess := func(namespace string) bool {
		return strings.HasPrefix(namespace, "/proc/") || strings.HasPrefix(namespace, "pid:")
	}
	if s := h.fault.Spec.Selector; s != nil {
		return ofProcess(s.Namespace)
	}
	d := h.target.Definition
	if target.Inline(h.fault.Spec.Target) { // of one that could not be put back it is all there is
		d, _ = target.Parse(h.fault.Spec.Target)
	}
	return d.Kind() == target.KindProcess || ofProcess(d.Namespace)
}

// lostForGood says of an error in resolving h's target that looking on is in vain.
func (h *held) lostForGood(err error) error {
	if errors.Is(err, target.ErrVanished) && h.throughProcess() {
		return goneForGood{fmt.Errorf("a process does not come back: %w", err)}
	}
	return err
}
