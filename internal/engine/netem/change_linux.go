package netem

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"netemd/internal/target"
	"netemd/qdisc"
)

// ConflictError says what stands where a fault was to go. It is an fs.ErrExist.
type ConflictError struct {
	Place target.Place
	// Found is what stands there: "a foreign root, htb 77:".
	Found string
}

func (e *ConflictError) Error() string { return fmt.Sprintf("netem: %s: %s", e.Place, e.Found) }

// Unwrap makes it an fs.ErrExist.
func (e *ConflictError) Unwrap() error { return fs.ErrExist }

// notOwned is the error for a device of somebody else, with what stands there.
func notOwned(c *qdisc.Conn, p target.Place) error {
	s, err := c.Root(nameOf(p))
	if err != nil {
		return err
	}
	return fmt.Errorf("netem: %s: netemd did not make this device, and leaves its root %s alone: %w", p, s, errors.ErrUnsupported)
}

// change makes n the impairment of the root of ours that is in the state from,
// verifies it, and goes back to from when that fails.
func (d *device) change(c *qdisc.Conn, p target.Place, from qdisc.State, n qdisc.Netem) error {
	former := from
	former.Netem.Distribution = d.table
	err := c.ChangeRoot(nameOf(p), former, n)
	if err == nil {
		err = verify(c, p, n)
	}
	if err != nil {
		return errors.Join(err, d.restore(c, p, former, n))
	}
	d.tally.changed(from)
	if n.Jitter > 0 {
		d.table = n.Distribution
	}
	d.owner, d.asked = p, n
	if n.IsZero() {
		d.owner, d.asked = target.Place{}, qdisc.Netem{}
	}
	return nil
}

// verify reads back and says in what the kernel's state is not n.
func verify(c *qdisc.Conn, p target.Place, n qdisc.Netem) error {
	s, err := c.Root(nameOf(p))
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
func (d *device) restore(c *qdisc.Conn, p target.Place, from qdisc.State, n qdisc.Netem) error {
	now, err := c.Root(nameOf(p))
	if err != nil || !now.Ours() {
		return err
	}
	now.Netem.Distribution = d.table
	if n.Jitter > 0 {
		now.Netem.Distribution = n.Distribution
	}
	same := len(from.Netem.Differences(now.Netem)) == 0 && slices.Equal(from.Other, now.Other)
	if same && now.Netem.Distribution == d.table {
		return nil
	}
	if from.Netem.Jitter == 0 {
		from.Netem.Distribution = "" // shapes nothing
		d.table = now.Netem.Distribution
	}
	if err := c.ChangeRoot(nameOf(p), now, from.Netem); err != nil {
		return fmt.Errorf("back to %s: %w", from.Netem, err)
	}
	return verify(c, p, from.Netem)
}
