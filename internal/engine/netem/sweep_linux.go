package netem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"netemd/internal/target"
	"netemd/namespaces"
)

// sweepDrain is how long the packets of a dead agent's faults may keep their time.
const sweepDrain = 2 * time.Second

// Sweep removes what engines with that Config.State left on devices of others in a
// namespace: filters, ifbs and gates, and a clsact that they made, once nothing stands in it.
// It finds what a process left that was killed at any step, and is idempotent. No engine with
// that state may run. It goes on after errors and joins them, and says in words which devices
// it removed. It needs what Engine needs.
func Sweep(ctx context.Context, ns *namespaces.Session, state string) (removed []string, err error) {
	return New(Config{State: state}).sweep(ctx, ns)
}

func (e *Engine) sweep(ctx context.Context, ns *namespaces.Session) (removed []string, err error) {
	r, err := rtnlIn(ctx, ns)
	if err != nil {
		return nil, fmt.Errorf("netem: sweep: %w", err)
	}
	removed, err = e.sweepIn(ctx, &conn{rtnl: r, ns: ns, log: e.log})
	if err != nil {
		err = fmt.Errorf("netem: sweep: %w", err)
	}
	return removed, err
}

func (e *Engine) sweepIn(ctx context.Context, c *conn) (removed []string, err error) {
	all, err := c.links()
	if err != nil {
		return nil, err
	}
	errs := []error{e.sweepFilters(c, all)}
	var left, gates, ours []link
	for _, l := range all {
		r, _ := parseRecord(l.alias)
		switch {
		case e.made(l) && r.gate(l):
			gates = append(gates, l)
		case e.made(l):
			left = append(left, l)
		case l.ourKind() && l.alias == "" && ourName(l.name, e.state): // half made
			errs = append(errs, absent(c.deleteLink(l)))
		default:
			continue
		}
		ours = append(ours, l)
	}
	if len(ours) == 0 {
		return nil, errors.Join(errs...)
	}
	if c.roots, err = e.dial(ctx, c.ns); err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	errs = append(errs, c.waitEmpty(ctx, left))
	for _, l := range left {
		errs = append(errs, absent(e.dismantle(c, l)))
	}
	for _, l := range gates { // those whose ifb was gone
		errs = append(errs, absent(e.discard(c, l)))
	}
	after, err := c.links()
	for _, l := range ours {
		stays := func(o link) bool { return o.index == l.index && o.name == l.name }
		if err == nil && !slices.ContainsFunc(after, stays) {
			removed = append(removed, inWords(l, c.ns.Name(), all))
		}
	}
	return removed, errors.Join(append(errs, err)...)
}

// inWords says what a device of ours was, and for which other one it was made.
func inWords(l link, namespace string, all []link) string {
	text := "device " + l.name
	if namespace != "" {
		text += " in netns " + namespace
	}
	r, _ := parseRecord(l.alias)
	at := slices.IndexFunc(all, func(o link) bool { return r.device != 0 && o.index == r.device })
	if at >= 0 {
		text += ", for a fault at " + all[at].name
	}
	return text
}

// sweepFilters deletes the filters with this engine's mark, whether their ifb is still
// there or not.
func (e *Engine) sweepFilters(c *conn, all []link) error {
	doors, err := c.entrances()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range all {
		if doors[l.index].kind == "" {
			continue
		}
		for _, hook := range []target.Hook{target.Egress, target.Ingress} {
			found, err := c.filters(l, hook)
			errs = append(errs, absent(err))
			for _, f := range found {
				if f.ours() && filterState(f.name) == e.state {
					errs = append(errs, absent(c.dropFilter(l, hook, f.cookie)))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// waitEmpty waits until the ifbs are empty, for sweepDrain at most.
func (c *conn) waitEmpty(ctx context.Context, left []link) error {
	ctx, cancel := context.WithTimeout(ctx, sweepDrain)
	defer cancel()
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	for _, l := range left {
		for last := uint64(0); ; {
			waiting, passed, err := c.waiting(l)
			if err != nil || waiting == 0 && passed == last {
				break // what cannot be read goes as it is
			}
			last = passed
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
	return nil
}
