package netem

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// roots changes and reads netem roots: a qdisc.Conn.
type roots interface {
	AddRoot(qdisc.Device, qdisc.Netem) error
	ChangeRoot(d qdisc.Device, from qdisc.State, n qdisc.Netem) error
	Root(qdisc.Device) (qdisc.State, error)
	Close() error
}

// root is what the engine remembers of a root of ours besides what the kernel tells.
type root struct {
	// asked is the impairment that this process set; zero when there is none.
	asked qdisc.Netem
	table table
	tally tally
}

// table is the distribution of the jitter whose table the kernel may still hold, which
// it never tells.
type table struct {
	qdisc.Distribution
	samples qdisc.Samples
}

// unknownTable stands for any table: what matters is that it is not uniform.
var unknownTable = table{Distribution: qdisc.Normal}

func tableOf(n qdisc.Netem) table { return table{n.Distribution, n.Samples} }

// of is n with that table.
func (t table) of(n qdisc.Netem) qdisc.Netem {
	n.Distribution, n.Samples = t.Distribution, t.samples
	return n
}

// change makes n the impairment of the root of ours on d that is in the state from,
// verifies it, and goes back to from when that fails. p is the place, for errors.
func (r *root) change(c roots, d qdisc.Device, p target.Place, from qdisc.State, n qdisc.Netem) error {
	former := from
	if len(r.asked.Differences(from.Netem)) == 0 {
		former.Netem = r.asked // with what the kernel does not tell
	}
	former.Netem = r.table.of(former.Netem)
	err := c.ChangeRoot(d, former, n)
	failAt("netem.root.changed")
	if err == nil {
		err = verify(c, d, p, n)
	}
	if err != nil {
		return errors.Join(err, r.restore(c, d, p, former, n))
	}
	r.tally.changed(from)
	if n.Jitter > 0 {
		r.table = tableOf(n)
	}
	r.asked = n
	return nil
}

// verify reads back and says in what the kernel's state is not n.
func verify(c roots, d qdisc.Device, p target.Place, n qdisc.Netem) error {
	s, err := c.Root(d)
	if err != nil {
		return err
	}
	if !s.Ours() {
		return &ConflictError{Place: p, Found: "meanwhile " + s.String()}
	}
	differ := slices.Concat(n.Differences(s.Netem), s.Other)
	switch {
	case len(differ) == 0:
		return nil
	case slices.Equal(differ, []string{"seed"}):
		return fmt.Errorf("netem: %s: this kernel's netem takes no seed (Linux 6.6 or later does): %w", p, errors.ErrUnsupported)
	}
	return fmt.Errorf("netem: %s: asked for %s, but %s is in force: they differ in %s", p, n, s.Netem, strings.Join(differ, ", "))
}

// restore puts from back in force, where a refused n has left something else.
func (r *root) restore(c roots, d qdisc.Device, p target.Place, from qdisc.State, n qdisc.Netem) error {
	now, err := c.Root(d)
	if err != nil || !now.Ours() {
		return err
	}
	may := r.table
	if n.Jitter > 0 {
		may = tableOf(n)
	}
	now.Netem = may.of(now.Netem)
	same := len(from.Netem.Differences(now.Netem)) == 0 && slices.Equal(from.Other, now.Other)
	if same && may == r.table && from.Netem.Slot.Distribution == n.Slot.Distribution && from.Netem.Slot.Samples == n.Slot.Samples {
		return nil
	}
	if from.Netem.Jitter == 0 {
		from.Netem = table{}.of(from.Netem) // it shapes nothing
		r.table = may
	}
	if err := c.ChangeRoot(d, now, from.Netem); err != nil {
		return fmt.Errorf("back to %s: %w", from.Netem, err)
	}
	return verify(c, d, p, from.Netem)
}

// status is what is in force by the root's state s, with its counters.
func (r *root) status(s qdisc.State) fault.Status {
	status := fault.Status{Counters: r.tally.sum}
	if !s.Ours() {
		status.Reason = fmt.Sprintf("another qdisc is there: %v", s)
	}
	if !s.Ours() || s.Netem.IsZero() {
		return status
	}
	status.Netem = s.Netem
	status.Netem.Seed = 0 // one that the kernel drew itself
	if len(r.asked.Differences(s.Netem)) == 0 {
		status.Netem = r.asked.Normalize() // with what the kernel does not tell
	}
	status.Counters = r.tally.now(s)
	status.Queued = uint64(s.Stats.Queued)
	if s.Stats.Netem == nil {
		status.CountersMissing = missing(s.Netem)
	}
	return status
}
