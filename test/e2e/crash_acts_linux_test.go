package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/client"
	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/lab/labfile"
	"netemd/internal/match"
	"netemd/internal/schedule"
	"netemd/internal/target"
	"netemd/internal/wire"
	"netemd/namespaces"
	"netemd/qdisc"
)

// play is one life of an agent: what clients do to it until it is killed. err is the first
// thing that an agent which lived refused.
type play struct {
	*victim
	g      *ground
	engine fault.Engine
	err    error
	// after are looks at what is elsewhere, once all is recovered.
	after []func()
}

// act is a play for the steps whose names begin with one of its passes.
type act struct {
	name   string
	passes []string
	// slow says that it takes longer than some seconds.
	slow bool
	// lab says that it makes one, and many that it passes most steps more than once.
	lab, many bool
	// args are for netemd, and earlier what another life of it does before, of which
	// nothing is killed.
	args    []string
	earlier func(*play)
	run     func(*play)
}

// acts are looked through from the first; what is special comes before what is not.
var acts = []act{
	{name: "expire", passes: []string{"lease.expire."}, run: (*play).expire},
	{name: "undo", passes: []string{"lease.undo."}, run: (*play).undo},
	{name: "hold", passes: []string{"lease.hold."}, run: (*play).hold},
	{name: "follow", passes: []string{"lease.follow."}, slow: true, run: (*play).follow},
	{name: "repair", passes: []string{"lease.repair.", "netem.remains."}, run: (*play).repair},
	{name: "keep", passes: []string{"lease.keep."}, args: []string{"--keep"}, run: (*play).keep},
	{name: "restore", passes: []string{"lease.restore."}, args: []string{"--keep"}, earlier: (*play).keep, run: func(*play) {}},
	{name: "schedule", passes: []string{"lease.step."}, run: (*play).schedule},
	{name: "names", passes: []string{"target."}, run: (*play).names},
	{name: "lead", passes: []string{"ebpf.lead."}, run: (*play).lead},
	{name: "lab", passes: []string{"lab.service.", "lab.down.", "lab.up.complete", "lab.up.device", "netem.root.added"}, slow: true, lab: true, run: (*play).lab},
	{name: "half a lab", passes: []string{"lab.up."}, lab: true, run: (*play).shapes},
	{name: "toxiproxy", passes: []string{"toxiproxy."}, run: (*play).toxiproxy},
	{name: "faults", passes: []string{"lease.", "offload.", "ebpf.", "netem."}, many: true, run: (*play).faults},
}

// actOf is the act in which a step is passed.
func actOf(step string) (act, bool) {
	for _, a := range acts {
		for _, p := range a.passes {
			if strings.HasPrefix(step, p) {
				return a, true
			}
		}
	}
	return act{}, false
}

// elsewhere says why a step is not passed with an engine on this kernel, and where it is.
func elsewhere(step string, engine fault.Engine, tcx bool) string {
	room, _, _ := strings.Cut(step, ".")
	begins := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(step, p) })
	}
	switch {
	case step == "lab.up.device" && engine != fault.Netem:
		return "on a kernel with netem"
	case room == "netem" && engine != fault.Netem:
		return "with the netem engine"
	case room == "ebpf" && engine != fault.EBPF:
		return "with the ebpf engine"
	case begins("ebpf.clsact.", "ebpf.filter.") && tcx:
		return "on a kernel without tcx"
	case begins("ebpf.lead.", "netem.gate.") && !tcx:
		return "on a kernel with tcx"
	}
	return ""
}

// apply makes a fault and returns its id.
func (p *play) apply(s fault.Spec) string {
	if s.Engine == "" {
		s.Engine = p.engine
	}
	f, err := p.client.Apply(p.ctx(), s)
	p.note(err)
	return f.ID
}

func (p *play) clear(id string) {
	_, err := p.client.Clear(p.ctx(), fault.Selector{ID: id})
	p.note(err)
}

func (p *play) note(err error) {
	if err == nil {
		return
	}
	if p.err == nil && !errors.Is(err, client.ErrUnreachable) && !p.within(100*time.Millisecond) {
		p.err = err
	}
}

// faults makes, changes, renews and clears impairments and rules: both hooks, a queue,
// offload, beside the filters and the programs of others.
func (p *play) faults() {
	peer := thereFour.String()
	first := p.apply(p.g.at("v0", fault.Spec{Packet: lossOf(30), Direction: fault.Both, Offload: fault.OffloadOff}, peer))
	second := p.apply(p.g.at("w0", fault.Spec{Packet: delayOf(20 * time.Millisecond), Direction: fault.Both}))
	third := p.apply(p.g.at("t0", fault.Spec{Packet: lossOf(10)}, "192.0.2.1"))
	fourth := p.apply(p.g.at("t0", fault.Spec{Packet: lossOf(10)}, "192.0.2.2"))
	rule := p.apply(p.g.at("v0", fault.Spec{Content: &content.Rule{Kind: content.SYN, Count: 1}, Engine: fault.EBPF}, thereOther.String()))
	held := p.apply(p.g.at("w0", fault.Spec{
		Content: &content.Rule{Kind: content.Data, N: 1, Count: 1, PerConnection: true, Hold: 50 * time.Millisecond}, Engine: fault.EBPF,
	}))
	delay, loss := 10*time.Millisecond, qdisc.Percent(5)
	_, err := p.client.Change(p.ctx(), first, qdisc.Patch{Delay: &delay})
	p.note(err)
	_, err = p.client.Change(p.ctx(), second, qdisc.Patch{Loss: &loss})
	p.note(err)
	_, err = p.client.Renew(p.ctx(), second, 0)
	p.note(err)
	for _, id := range []string{first, rule, second, held, third, fourth} {
		p.clear(id)
	}
}

// expire lets the time of faults run out.
func (p *play) expire() {
	p.apply(p.g.at("w0", fault.Spec{Packet: lossOf(50), TTL: time.Second}))
	p.apply(p.g.at("v0", fault.Spec{Packet: delayOf(10 * time.Millisecond), Direction: fault.Both, Offload: fault.OffloadOff, TTL: time.Second}))
	p.within(patience(20 * time.Second))
}

// undo asks for what is refused half-way: a queue on a device without Ethernet's header,
// a second place in a block of filters.
func (p *play) undo() {
	s := p.g.at("t0", fault.Spec{Packet: delayOf(time.Millisecond), Offload: fault.OffloadOff})
	if p.engine == fault.Netem {
		s = p.g.at("b0", fault.Spec{Packet: delayOf(time.Millisecond), Direction: fault.Both, Offload: fault.OffloadOff})
	}
	if p.apply(s); p.err == nil && !p.within(100*time.Millisecond) {
		p.err = errors.New("it was not refused")
		return
	}
	p.err = nil
}

// hold has clients that hold faults: one that releases, one whose fault another takes
// over, and one that goes away.
func (p *play) hold() {
	s := p.g.at("w0", fault.Spec{Packet: lossOf(20), Engine: p.engine})
	h, err := p.client.Hold(p.ctx(), s, nil)
	if err != nil {
		p.note(err)
		return
	}
	p.note(p.takeOver(h.Fault()))
	_, _ = h.Release(p.ctx()) // the other one has it
	if h, err = p.client.Hold(p.ctx(), s, nil); err != nil {
		p.note(err)
		return
	}
	_, err = h.Release(p.ctx())
	p.note(err)
}

// takeOver resumes the hold of another client, and goes away.
func (p *play) takeOver(f fault.Fault) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.stateDir, "netemd.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	stream, err := netemv1.NewFaultsClient(conn).Hold(p.ctx())
	if err == nil {
		if err = stream.Send(wire.HoldResume(f.ID, f.Token)); err == nil {
			_, err = stream.Recv()
		}
	}
	_ = conn.Close()
	for end := time.Now().Add(patience(10 * time.Second)); err == nil && time.Now().Before(end) && !p.dead(); time.Sleep(10 * time.Millisecond) {
		if all, err := p.client.List(p.ctx()); err == nil && len(all) == 0 {
			break
		}
	}
	return err
}

// follow moves the addresses of a host name, of a fault that moves in one step and of one
// that does not.
func (p *play) follow() {
	p.apply(p.g.at("w0", fault.Spec{Packet: lossOf(20)}, "db.example"))
	p.apply(p.g.at("v0", fault.Spec{Content: &content.Rule{Kind: content.SYN}, Engine: fault.EBPF}, "db.example"))
	p.note(os.WriteFile(p.home.hosts, []byte("127.0.0.1 localhost\n10.81.0.9 db.example\n"), 0o644))
	p.within(patience(30 * time.Second))
}

// repair takes away what is in force, and changes it.
func (p *play) repair() {
	p.apply(p.g.at("w0", fault.Spec{Packet: lossOf(20), Repair: true}))
	p.note(p.g.take("w0"))
	p.within(patience(20 * time.Second))
}

// schedule has a fault change by its timetable, from a loss to a queue.
func (p *play) schedule() {
	const part = 200 * time.Millisecond
	steps := []schedule.Step{
		{For: part, Impairment: schedule.Impairment{Packet: *lossOf(20)}},
		{For: part, Impairment: schedule.Impairment{Packet: *delayOf(10 * time.Millisecond)}},
		{For: part},
	}
	p.apply(p.g.at("w0", fault.Spec{Schedule: &schedule.Schedule{Steps: steps, Rounds: schedule.Forever}, TTL: time.Minute}))
	p.within(patience(20 * time.Second))
}

// names adds targets, has a fault on one of them, and removes them.
func (p *play) names() {
	for _, name := range []string{"one", "two"} {
		_, err := p.client.AddTarget(p.ctx(), target.Definition{Name: name, Device: "w0", Namespace: p.g.here})
		p.note(err)
	}
	p.apply(fault.Spec{Target: "one", Packet: lossOf(10), TTL: time.Minute})
	_, err := p.client.RemoveTarget(p.ctx(), "one", true)
	p.note(err)
	_, err = p.client.RemoveTarget(p.ctx(), "two", false)
	p.note(err)
}

// take takes away what is in force at a device's egress: netemd's program at tcx, or its
// filter, and has the devices down to which the netem engine sends packets.
func (g *ground) take(device string) error {
	return namespaces.Do(g.t.Context(), g.here, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Alias, "netemd1 ") {
				err = errors.Join(err, netlink.LinkSetDown(l))
			}
			if l.Attrs().Name == device {
				err = errors.Join(err, detach(l))
			}
		}
		return err
	})
}

// detach takes netemd's programs and filters off the egress of a device.
func detach(l netlink.Link) error {
	found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		found = &link.QueryResult{} // no tcx
	}
	for _, p := range found.Programs {
		id, ok := p.LinkID()
		if name, err := match.ProgramName(p.ID); !ok || err != nil || !match.Ours(name) {
			continue
		}
		at, err := link.NewFromID(id)
		if err == nil {
			err = at.Detach()
			_ = at.Close()
		}
		if err != nil {
			return err
		}
	}
	filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_EGRESS)
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && strings.HasPrefix(b.Name, "netemd") {
			err = errors.Join(err, netlink.FilterDel(f))
		}
	}
	return err
}

// lead has somebody put a program before that of a queue, which then moves.
func (p *play) lead() {
	p.apply(p.g.at("w0", fault.Spec{Packet: delayOf(10 * time.Millisecond)}))
	stranger := p.g.stranger("w0", ebpf.AttachTCXEgress)
	p.within(patience(20 * time.Second))
	_ = stranger.Close()
}

// lab makes a lab with a fault, and takes it down. There is one of its name at a time.
func (p *play) lab() {
	_, err := p.client.LabUp(p.ctx(), labfile.Request{Name: "pg"}, nil)
	p.note(err)
	p.apply(fault.Spec{Target: "pg", Packet: lossOf(10), Direction: fault.Both})
	_, err = p.client.LabDown(p.ctx(), "pg")
	p.note(err)
}

// shapesText is a lab of each thing that one is made of, but services.
const shapesText = `
lab: nt-e2e-shapes
nodes: {a: {}, b: {forward: true}, c: {sysctls: {net.ipv4.tcp_syn_retries: 3}}}
switches: {lan: {subnet6: "fd00:9::/64"}}
links:
  - {a: a, b: lan}
  - {a: b, b: lan, impairment: {delay: 1ms}}
  - {a: b, b: c, wire: false}
targets: {c: {node: c, client: a, port: 80}}
`

// shapes makes a lab with everything but services, and takes it down.
func (p *play) shapes() {
	_, err := p.client.LabUp(p.ctx(), labfile.Request{Name: "nt-e2e-shapes", Text: []byte(shapesText), From: labfile.Source{Path: "shapes.yaml"}}, nil)
	p.note(err)
	_, err = p.client.LabDown(p.ctx(), "nt-e2e-shapes")
	p.note(err)
}

// keep hands faults over to the next life.
func (p *play) keep() {
	p.apply(p.g.at("v0", fault.Spec{Packet: lossOf(20), Direction: fault.Both, Offload: fault.OffloadOff}, thereFour.String()))
	p.apply(p.g.at("w0", fault.Spec{Packet: delayOf(10 * time.Millisecond)}))
	p.term()
}
