package location

import (
	"context"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink"

	"netemd/internal/container"
	"netemd/internal/target"
	"netemd/namespaces"
)

// Find returns where d is now; the target has d's name, or what an inline one says. It needs
// CAP_SYS_ADMIN for other namespaces than the process's own, and CAP_SYS_PTRACE for those
// of other users' processes.
//
// The error is a *qdisc.FieldError for what is not well-formed, and for a device that does not
// exist or is one of several; it matches target.ErrVanished where what d stands for is not there now, and
// container.ErrUnknown, ErrAmbiguous and ErrStopped for containers. Each names what there is.
func (f Finder) Find(ctx context.Context, d target.Definition) (target.Target, error) {
	if err := d.Validate(); err != nil {
		return target.Target{}, err
	}
	if d.Kind() == target.KindToxiproxy {
		return proxy(d)
	}
	var err error
	within, inside := d.Within()
	if within, err = namespaces.ParseReference(within); err != nil {
		return target.Target{}, err
	}
	if d.Namespace = within; inside != "" {
		d.Namespace += "%" + inside
	}
	find := map[target.Kind]func(context.Context, target.Definition) (target.Target, error){
		target.KindInterface: f.device, target.KindNamespace: f.namespace, target.KindProcess: f.process,
		target.KindContainer: f.container, target.KindAddress: f.host,
		target.KindCgroup: f.cgroup, target.KindUnit: f.cgroup,
	}[d.Kind()]
	t, err := find(ctx, d)
	if err != nil {
		return target.Target{}, err
	}
	if t.Name = d.Name; t.Name == "" {
		t.Name = d.String()
	}
	t.Definition = d
	return t, nil
}

// proxy is a target without a place: nothing of it is looked up before a fault asks for it.
func proxy(d target.Definition) (target.Target, error) {
	p, err := target.ParseToxiproxy(d.Toxiproxy)
	if err != nil {
		return target.Target{}, err
	}
	t := target.Target{Name: d.Name, Definition: d, Toxiproxy: &p}
	if t.Name == "" {
		t.Name = d.String()
	}
	t.Proxy, _ = netip.ParseAddrPort(p.Listen) // of one that is there it is not known
	return t, nil
}

// link is a device in an open namespace.
type link struct {
	netlink.Link
	namespace string
	cookie    uint64
}

// place is one side of it.
func (l link) place(hook target.Hook, m target.Match) target.Place {
	a := l.Attrs()
	if a.Flags&loopbackFlag != 0 {
		hook = target.Egress // every packet passes it, whichever way it goes
	}
	return target.Place{Namespace: l.namespace, Cookie: l.cookie, Device: a.Name, Index: a.Index, Hook: hook, Match: m}
}

// inside are the places of a target that has the device: what goes to it arrives there.
func (l link) inside(m target.Match) target.Target {
	return target.Target{To: l.place(target.Ingress, m), From: l.place(target.Egress, m.Reverse())}
}

// outside are those of a target behind the device: what goes to it leaves there.
func (l link) outside(m target.Match) target.Target {
	return target.Target{To: l.place(target.Egress, m), From: l.place(target.Ingress, m.Reverse())}
}

// device finds an interface by its name, or by an address of it.
func (f Finder) device(ctx context.Context, d target.Definition) (target.Target, error) {
	name := d.Device
	if d.AddressIn.IsValid() {
		var err error
		if name, err = f.deviceWith(ctx, d); err != nil {
			return target.Target{}, err
		}
	}
	l, err := named(ctx, d.Namespace, name)
	if err != nil {
		return target.Target{}, err
	}
	return l.outside(d.Flows()), nil
}

// namespace finds the one device of a namespace.
func (f Finder) namespace(ctx context.Context, d target.Definition) (target.Target, error) {
	namespace, device := d.Within()
	l, err := f.only(ctx, namespace, device)
	if err != nil {
		return target.Target{}, err
	}
	t := l.inside(d.Flows())
	t.ServerNamespace = namespace
	return t, nil
}

// process is namespace of the one that a process is in.
func (f Finder) process(ctx context.Context, d target.Definition) (target.Target, error) {
	began, err := container.Started(d.PID)
	switch {
	case err != nil:
		return target.Target{}, fmt.Errorf("target pid:%d: %w: %w", d.PID, target.ErrVanished, err)
	case d.Started != 0 && d.Started != began:
		return target.Target{}, fmt.Errorf("target pid:%d: %w: its process ended, and another one has its number: %w", d.PID, target.ErrVanished, fs.ErrNotExist)
	}
	ns := namespaces.OfProcess(d.PID)
	if err := foreign(ns, fmt.Sprintf("process %d", d.PID), "cgroup:"+cgroupOf(d.PID)); err != nil {
		return target.Target{}, err
	}
	ns = lasting(ns)
	l, err := f.only(ctx, ns, d.Device)
	if err != nil {
		return target.Target{}, err
	}
	t := l.inside(d.Flows())
	t.ServerNamespace, t.Process = ns, led(d.PID, began, l)
	return t, nil
}
