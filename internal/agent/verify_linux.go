package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink"

	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/internal/verify"
	"netemd/namespaces"
	"netemd/qdisc"
)

// verify sends packets through a fault's places. A fault that ended or changed
// meanwhile leaves the result inconclusive. The error is fault.ErrBusy when too many are
// verified.
func (a *Agent) verify(ctx context.Context, id string, o verify.Options, progress func(sent, packets int)) (verify.Result, error) {
	if err := o.Validate(); err != nil {
		return verify.Result{}, fmt.Errorf("verify: %w: %w", qdisc.ErrInvalid, err)
	}
	before, err := a.leases.Held(ctx, id)
	if err != nil {
		return verify.Result{}, err
	}
	if before.Fault.Spec.Schedule != nil {
		return verify.Result{}, fmt.Errorf("verify: fault %s goes by a schedule, and what is asked for would change while it is measured; verify its steps as faults of their own: %w", id, errors.ErrUnsupported)
	}
	if before.Fault.State == fault.Lost {
		return verify.Result{}, fmt.Errorf("verify: fault %s is lost: what it was placed at is gone: %w", id, fs.ErrNotExist)
	}
	end, err := a.verifying.begin(id)
	if err != nil {
		return verify.Result{}, err
	}
	defer end()
	order := verify.Order{Fault: id, Engine: before.Fault.Engine, Options: o}
	for _, h := range before.Places {
		if of := h.Place.Match.Cgroups(); len(of) > 0 {
			return verify.Result{}, fmt.Errorf("verify: at the %s the packets of cgroup %s are told by the sockets of its processes, and those of a verification are the agent's own: %w", h.Place, of[0].Path, errors.ErrUnsupported)
		}
		between, err := endsOf(ctx, before, h.Place)
		if err != nil {
			return verify.Result{}, err
		}
		order.Paths = append(order.Paths, verify.Path{Place: h.Place, Netem: h.Netem, Between: between, Status: h.Status})
	}
	result, err := verify.Run(ctx, order, progress)
	if err != nil {
		return result, err
	}
	if reason := a.disturbed(ctx, before); reason != "" {
		result.Verdict, result.Reason = verify.Inconclusive, reason
	}
	return result, nil
}

// disturbed says what became of a fault since; empty when it is as it was.
func (a *Agent) disturbed(ctx context.Context, before lease.Holding) string {
	id := before.Fault.ID
	now, err := a.leases.Held(ctx, id)
	switch {
	case errors.Is(err, lease.ErrUnknownFault):
		return fmt.Sprintf("fault %s ended while it was verified", id)
	case err != nil:
		return fmt.Sprintf("fault %s could not be looked at afterwards: %v", id, err)
	case now.Fault.State != before.Fault.State:
		return fmt.Sprintf("fault %s became %s while it was verified", id, now.Fault.State)
	}
	for i, h := range before.Places {
		if i >= len(now.Places) || now.Places[i].Netem != h.Netem || now.Places[i].Place.Key() != h.Place.Key() {
			return fmt.Sprintf("fault %s, or another one on its packets, was changed while it was verified", id)
		}
	}
	return ""
}

// endsOf are the ends of the path through a place of a lab's target: its client and
// its server, or the other way round. A device of somebody else's has none that are
// known.
func endsOf(ctx context.Context, h lease.Holding, p target.Place) (*verify.Ends, error) {
	t := h.Target
	if h.Fault.Spec.Selector != nil || t.ClientNamespace == "" {
		return nil, nil //nolint:nilnil // the order's word for a path without known ends
	}
	if p.Key() == t.To.Key() {
		device, err := deviceOf(ctx, t.ServerNamespace, t.Address.Addr(), false)
		return &verify.Ends{Sender: t.ClientNamespace, Receiver: t.ServerNamespace, Device: device}, err
	}
	device, err := deviceOf(ctx, t.ClientNamespace, t.Address.Addr(), true)
	return &verify.Ends{Sender: t.ServerNamespace, Receiver: t.ClientNamespace, Device: device}, err
}

// deviceOf finds the device in a namespace that has the address, or by which the
// address is reached from there.
func deviceOf(ctx context.Context, namespace string, a netip.Addr, reached bool) (name string, err error) {
	err = namespaces.Do(ctx, namespace, func() error {
		var index int
		if reached {
			routes, err := netlink.RouteGet(a.AsSlice())
			if err != nil {
				return err
			}
			for _, r := range routes {
				index = r.LinkIndex
			}
		} else {
			addresses, err := namespaces.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
			if err != nil {
				return err
			}
			for _, at := range addresses {
				if at.IP.Equal(a.AsSlice()) {
					index = at.LinkIndex
				}
			}
		}
		if index == 0 {
			return fs.ErrNotExist
		}
		link, err := netlink.LinkByIndex(index)
		if err == nil {
			name = link.Attrs().Name
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("verify: the device of %s in netns %s: %w", a, namespace, err)
	}
	return name, nil
}
