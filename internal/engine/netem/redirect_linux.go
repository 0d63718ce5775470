package netem

import (
	"fmt"
	"io/fs"

	"netemd/internal/target"
)

// redirect lets the filter of x send its flow to the ifb, and reads it back.
func (e *Engine) redirect(c *conn, x *detour, l link, header int, made *undo) error {
	all, err := c.filters(l, x.at.Hook)
	if err != nil {
		return err
	}
	old, err := find(all, x.filter.cookie)
	if err == nil {
		x.filter.packets = old.packets
		if old.program == x.filter.program && x.leads(old) {
			return nil
		}
	}
	prog, id, err := load(x.at.Match, header)
	if err != nil {
		return fmt.Errorf("netem: %s: %w", x.at, err)
	}
	defer func() { _ = prog.Close() }()
	f, ahead := old, []filter(nil)
	if old.handle == 0 {
		f, ahead = position(all, x.at.Hook)
	}
	f.to, f.cookie = x.ifb.index, x.ifb.name
	f.name = filterText(e.state, f.cookie)
	if old.handle != 0 {
		err = c.replaceFilter(l, f, prog.FD())
	} else {
		err = c.addFilter(l, f, prog.FD())
	}
	// A filter that was there stays, unless its new ifb does not: what it sends to one
	// that is gone is lost.
	if old.handle == 0 || err == nil && old.to != f.to {
		made.push(func() error { return c.dropFilter(l, x.at.Hook, f.cookie) })
	}
	if err != nil {
		return err
	}
	failAt("netem.filter.set")
	all, err = c.filters(l, x.at.Hook)
	if err != nil {
		return err
	}
	now, err := find(all, f.cookie)
	if err != nil || now.program != id || now.to != f.to || !now.redirects {
		return &ConflictError{Place: x.at, Found: "meanwhile somebody changed the filter that was just set"}
	}
	x.seen, x.before = x.seen+x.filter.packets-x.before, 0
	x.filter = now
	if old.handle == 0 {
		for _, o := range ahead {
			x.notes = append(x.notes, fmt.Sprintf("a filter of somebody else, %s, comes first: what it decides on never gets to the fault", o))
		}
	}
	return nil
}

// leads reports whether f does what it should.
func (x *detour) leads(f filter) bool { return f.redirects && f.to == x.ifb.index && f.chain == 0 }

// dropFilter deletes our filter with that cookie and reads back that it is gone.
func (c *conn) dropFilter(l link, hook target.Hook, cookie string) error {
	for range 2 {
		all, err := c.filters(l, hook)
		if err != nil {
			return err
		}
		f, err := find(all, cookie)
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if err := c.deleteFilter(l, f); err != nil {
			return err
		}
	}
	return fmt.Errorf("filter delete: %s: it is still there: %w", l.name, fs.ErrExist)
}
