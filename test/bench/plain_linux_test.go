package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/namespaces"
	"netemd/qdisc"
)

// plain is how one impairs a device without netemd: a qdisc by a tc process, and by one
// rtnetlink request on a connection that is open. It is a netem where the kernel has one,
// else a tbf, which costs about the same to set.
type plain struct {
	namespace string
	kind      string
	tcOptions []string
	link      netlink.Link
	device    qdisc.Device
	conn      *qdisc.Conn
	handle    *netlink.Handle
}

func newPlain(b *testing.B, ns string) *plain {
	b.Helper()
	p := &plain{namespace: ns, kind: "netem", tcOptions: []string{"delay", "1ms"}}
	err := namespaces.Do(b.Context(), ns, func() (err error) {
		if p.link, err = netlink.LinkByName("v0"); err != nil {
			return err
		}
		if p.handle, err = netlink.NewHandle(); err != nil {
			return err
		}
		p.conn, err = qdisc.Dial(qdisc.Config{Namespace: ns})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		p.handle.Close()
		_ = p.conn.Close()
	})
	p.device = qdisc.Device{Name: "v0", Index: p.link.Attrs().Index}
	switch err := p.set(b.Context()); {
	case errors.Is(err, errors.ErrUnsupported):
		p.kind, p.tcOptions = "tbf", []string{"rate", "10gbit", "burst", "1mb", "latency", "1s"}
	case err != nil:
		b.Fatal(err)
	default:
		if err := p.clear(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	return p
}

// set and clear are one request each.
func (p *plain) set(context.Context) error {
	if p.kind == "netem" {
		return p.conn.ReplaceRoot(p.device, qdisc.Netem{Delay: time.Millisecond})
	}
	return p.handle.QdiscReplace(p.tbf())
}

func (p *plain) clear(context.Context) error {
	if p.kind == "netem" {
		return p.conn.DeleteRoot(p.device)
	}
	return p.handle.QdiscDel(p.tbf())
}

func (p *plain) tbf() *netlink.Tbf {
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: p.device.Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
		Rate:       1250e6, Buffer: 1 << 20, Limit: 2 << 20,
	}
}

// tcSet and tcClear are a process each, which is in the namespace from its start.
func (p *plain) tcSet(context.Context) error {
	return p.tc(append([]string{"qdisc", "replace", "dev", "v0", "root", p.kind}, p.tcOptions...)...)
}

func (p *plain) tcClear(context.Context) error { return p.tc("qdisc", "del", "dev", "v0", "root") }

func (p *plain) tc(args ...string) error {
	cmd := exec.Command("tc", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := namespaces.Start(p.namespace, cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, &said)
	}
	return nil
}
