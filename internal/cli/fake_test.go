package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"netemd/internal/client"
	"netemd/internal/content"
	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/fidelity"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/internal/profile"
	"netemd/internal/target"
	"netemd/probe"
	"netemd/qdisc"
)

// noon is when every test happens.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeAgent keeps faults and makes up measurements.
type fakeAgent struct {
	// served are the calls of LabServer.
	served []string

	mu       sync.Mutex
	next     int
	faults   []fault.Fault
	cleared  []string
	labs     []lab.Info
	features feature.Report
	profiles []profile.Profile
	// matched is how many packets every packet fault has seen, queued how many it holds.
	matched, queued uint64
	// opened is how many packets every fault has let pass.
	opened uint64
	// state, when set, is what a look finds every fault in.
	state fault.State
	// verdict is what a verification comes to; empty is Pass.
	verdict fidelity.Verdict
	// missing are the counters that this engine does not have.
	missing  []string
	renewals int
	// log is what every rule chose.
	log content.Log
	// notify is the last holder's, ended what ended its fault from outside.
	notify func(fault.Event, string)
	ended  fault.State
	// heldErr is why a fault is not held to its release, waits how often a fault is in the way.
	heldErr error
	waits   int
	// clearErr refuses every clear.
	clearErr error
	// repaired says that the last fault was to be repaired.
	repaired bool
	// total is how many packets every fault has seen before it was changed, too.
	total uint64
	// verified and ran say that a verification and a command have run, still that nothing
	// passes beside the command.
	verified, ran, still bool
	// during is called while a probe runs.
	during func()
	err    error
	// events are told to who follows faults, watchErr refuses that.
	events   []fault.Event
	watchErr error
	// request and run are the last probe's.
	request probe.Request
	run     client.ProbeRun
}

func newFakeAgent() *fakeAgent {
	return &fakeAgent{matched: 3121, features: noNetem}
}

// noNetem is a kernel like those of cloud machines.
var noNetem = feature.Report{
	Kernel: "6.18.5",
	Features: []feature.Feature{
		{Name: "sch_netem", State: feature.No, Detail: "Specified qdisc kind is unknown"},
		{Name: "tcx", State: feature.Yes},
		{Name: "tun", State: feature.Yes},
		{Name: "tp_btf", State: feature.Yes},
	},
	Auto: fault.EBPF, AutoReason: "this kernel has no sch_netem",
}

func (a *fakeAgent) Close() error { return nil }

func (a *fakeAgent) Apply(_ context.Context, s fault.Spec) (fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return fault.Fault{}, a.err
	}
	if a.waits--; a.waits >= 0 {
		return fault.Fault{}, a.conflict()
	}
	if s.Selector == nil && s.Target != "pg" {
		return fault.Fault{}, fmt.Errorf("%w %q, known: pg", target.ErrUnknown, s.Target)
	}
	var step *fault.Step
	if s.Schedule != nil { // half a second after its beginning
		m := s.Schedule.At(500 * time.Millisecond)
		of, _ := s.Schedule.Count()
		step = &fault.Step{
			Number: m.Number, Of: of, Step: m.Step, Round: m.Round, Began: noon.Add(m.Begin), Next: noon.Add(m.End),
			Late: 120 * time.Microsecond, MaxLate: 3 * time.Millisecond, Skipped: 2,
		}
		s.Follow(m)
	}
	if s.TTL == 0 {
		s.TTL = fault.DefaultTTL
	}
	s.Owner = "uid 0 (root)"
	a.repaired = s.Repair
	a.next++
	f := fault.Fault{
		ID: fmt.Sprintf("f%d", a.next), Spec: s, State: fault.Active, Engine: fault.EBPF, EngineReason: "this kernel has no sch_netem",
		Placement: []string{"egress of server in netem-pg-wire"}, Applied: noon, Expires: noon.Add(s.TTL), Step: step,
	}
	if s.Selector != nil {
		f.Placement = []string{target.Place{Namespace: s.Selector.Namespace, Device: s.Selector.Device, Hook: target.Egress}.String()}
	}
	if s.Offload != "" {
		f.Offloads = []fault.Offload{{Device: "v0", Before: []string{"tx-tcp-segmentation", "rx-gro"}, Off: []string{"rx-gro"}}}
	}
	if s.Toxics != nil {
		f.Engine, f.EngineReason, f.Placement = fault.Stream, "a toxic", []string{"proxy 10.77.0.2:15432 in netem-pg-server"}
	} else if s.Request != nil {
		r := *s.Request
		r.Seed = max(r.Seed, 4711)
		f.Spec.Request = &r
		f.Engine, f.EngineReason, f.Placement = fault.Application, "requests", []string{"http-proxy at 10.80.0.2:8080"}
	} else if s.Packet != nil {
		f.Warnings = s.Packet.Warnings()
	}
	a.faults = append(a.faults, f)
	return f, nil
}

func (a *fakeAgent) find(id string) (*fault.Fault, error) {
	for i := range a.faults {
		if a.faults[i].ID == id {
			return &a.faults[i], nil
		}
	}
	return nil, fmt.Errorf("fault %s: %w", id, fs.ErrNotExist)
}

// Get finds half of the packets of a fault that was verified and whose command has not run.
func (a *fakeAgent) Get(_ context.Context, id string) (fault.Fault, error) {
	f, err := a.get(id)
	if a.mu.Lock(); a.verified && f.Token != 0 && !a.ran && !a.still {
		f.Counters.Seen /= 2
	}
	a.mu.Unlock()
	return f, err
}

func (a *fakeAgent) get(id string) (fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := a.find(id)
	if err != nil {
		return fault.Fault{}, err
	}
	got := *f
	if a.state != "" {
		got.State = a.state
	}
	if got.Spec.Packet != nil {
		got.Counters = fault.Counters{Seen: a.matched, Lost: a.matched / 5}
		got.CountersMissing, got.Queued = a.missing, a.queued
	}
	if got.Spec.Request != nil && a.matched > 0 {
		got.Counters = fault.Counters{Seen: a.matched, Errors: a.matched / 5, Delayed: 1, Aborted: 2}
	}
	switch r := got.Spec.Content; {
	case r == nil:
	case r.Hold > 0:
		got.Counters = fault.Counters{Seen: a.matched, Delayed: a.log.Chosen}
	default:
		got.Counters = fault.Counters{Seen: a.matched, Lost: a.log.Chosen}
	}
	got.Counters.Opened, got.Total.Seen = a.opened, a.total
	return got, nil
}

func (a *fakeAgent) Change(_ context.Context, id string, p qdisc.Patch) (fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := a.find(id)
	if err != nil {
		return fault.Fault{}, err
	}
	n := p.Apply(*f.Spec.Packet)
	if err := n.Validate(); err != nil {
		return fault.Fault{}, err
	}
	f.Spec.Packet = &n
	return *f, nil
}

func (a *fakeAgent) Renew(_ context.Context, id string, ttl time.Duration) (fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := a.find(id)
	if err != nil {
		return fault.Fault{}, err
	}
	a.renewals++
	if ttl == 0 {
		ttl = f.Spec.TTL
	}
	f.Expires = noon.Add(ttl)
	return *f, nil
}

func (a *fakeAgent) List(context.Context) ([]fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.faults), a.err
}

func (a *fakeAgent) Clear(ctx context.Context, s fault.Selector) ([]fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := errors.Join(a.clearErr, a.err); err != nil {
		return nil, err
	}
	var kept, gone []fault.Fault
	for _, f := range a.faults {
		device := s.Device != "" && f.Spec.Selector != nil && f.Spec.Selector.Name() == s.Device
		if s.All || f.ID == s.ID || s.Target != "" && f.Spec.Target == s.Target || device {
			f.State, f.Queued = fault.Cleared, a.queued
			gone = append(gone, f)
			a.cleared = append(a.cleared, f.ID)
			continue
		}
		kept = append(kept, f)
	}
	a.faults = kept
	var n int
	if _, err := fmt.Sscanf(s.ID, "f%d", &n); s.ID != "" && (err != nil || n > a.next) {
		return nil, fmt.Errorf("fault %s: %w", s.ID, fs.ErrNotExist)
	}
	return gone, nil
}

// Hold makes a fault that Release ends.
func (a *fakeAgent) Hold(ctx context.Context, s fault.Spec, notify func(fault.Event, string)) (experiment.Held, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for ; a.waits > 0 && s.Wait > 0; a.waits-- { // each that is in the way is told
		notify(fault.Event{Kind: client.Waiting}, a.conflict().Error())
	}
	f, err := a.Apply(ctx, s)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notify = notify
	a.faults[len(a.faults)-1].Token = 1
	return &fakeHeld{a, f}, nil
}

func (a *fakeAgent) conflict() error {
	return fmt.Errorf("apply: %w: pg is held by uid 1000 (ci) with fault f7 (applied 3s ago, ends in 9m57s)", fault.ErrConflict)
}

// happen tells the holder of the last fault.
func (a *fakeAgent) happen(kind string, s fault.State, words string) {
	a.mu.Lock()
	f, notify := a.faults[len(a.faults)-1], a.notify
	a.mu.Unlock()
	f.State = s
	notify(fault.Event{Time: time.Now(), Kind: kind, Fault: f}, words)
}

type fakeHeld struct {
	a *fakeAgent
	f fault.Fault
}

func (h *fakeHeld) Fault() fault.Fault { return h.f }

func (h *fakeHeld) Renew() error {
	_, err := h.a.Renew(context.Background(), h.f.ID, 0)
	return err
}

func (h *fakeHeld) Release(ctx context.Context) (fault.Fault, error) {
	whole := context.WithoutCancel(ctx)
	last, err := h.a.Get(whole, h.f.ID)
	if h.a.ended != "" {
		last, err = h.f, nil
		last.State = h.a.ended
	}
	_, clearErr := h.a.Clear(whole, fault.Selector{ID: h.f.ID})
	return last, errors.Join(h.a.heldErr, err, clearErr)
}

// WatchFrom tells what happens to the faults that were made after it began, and ends by ctx.
func (a *fakeAgent) WatchFrom(ctx context.Context, _ uint64, _ string, begun func(), event func(fault.Event)) error {
	if a.watchErr != nil {
		return a.watchErr
	}
	begun()
	for _, e := range a.events {
		event(e)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (a *fakeAgent) Watch(ctx context.Context, after uint64, life string, event func(fault.Event)) error {
	if life != "" && life != "bqk" {
		return fmt.Errorf("watch: %w: this agent's life is bqk", fault.ErrMissed)
	}
	for i, f := range a.faults {
		if n := uint64(i + 1); n > after {
			event(fault.Event{Number: n, Life: "bqk", Monotonic: int64(n) * 1e9, Time: noon.Add(1500 * time.Millisecond), Kind: "applied", Fault: f})
		}
	}
	if a.err != nil {
		return a.err
	}
	<-ctx.Done()
	return ctx.Err()
}

// Packets also knows faults that have ended.
func (a *fakeAgent) Packets(_ context.Context, id string, follow bool, f func(content.Log)) error {
	var n int
	if _, err := fmt.Sscanf(id, "f%d", &n); err != nil || n > a.next {
		return fmt.Errorf("fault %s: %w", id, fs.ErrNotExist)
	}
	if !follow {
		f(a.log)
		return nil
	}
	for i, r := range a.log.Records {
		part := content.Log{Records: []content.Record{r}, Chosen: a.log.Chosen, Missed: a.log.Missed, Forgotten: a.log.Forgotten}
		if i == 1 {
			part.Skipped = a.log.Skipped
		}
		f(part)
	}
	return nil
}

// Verify finds the loss that the counters say.
func (a *fakeAgent) Verify(ctx context.Context, id string, o fidelity.Options, progress func(sent, packets int)) (fidelity.Result, error) {
	f, err := a.get(id)
	if err != nil {
		return fidelity.Result{}, err
	}
	a.mu.Lock()
	a.verified = true
	a.mu.Unlock()
	o = o.Normalize()
	progress(o.Packets/2, o.Packets)
	if a.during != nil {
		a.during()
	}
	if ctx.Err() != nil {
		return fidelity.Result{}, context.Cause(ctx)
	}
	r := fidelity.Result{Fault: id, Verdict: a.verdict, Reason: "every number is as asked"}
	if r.Verdict == "" {
		r.Verdict = fidelity.Pass
	}
	if r.Verdict != fidelity.Pass {
		r.Reason = "the queue overflowed"
	}
	lost := float64(f.Counters.Lost) / float64(f.Counters.Seen) * 100
	p := fidelity.PlaceResult{
		Placement: f.Placement[0], Path: "from netem-pg-client to eth0 in netem-pg-server", Packet: "tcp to 10.77.0.2 port 5432, 256 bytes",
		Asked: f.Spec.Packet.String(), Verdict: r.Verdict, Sent: o.Packets, Received: o.Packets * 4 / 5, RatePacketsPerSecond: float64(o.Rate),
		Checks: []fidelity.Check{
			{Name: "loss_percent", Asked: new(float64(f.Spec.Packet.Loss)), Measured: &lost, Low: new(18.71), High: new(21.3266), ConfidencePercent: 99.9, Verdict: r.Verdict},
			{Name: "delay_p50_ms", Asked: new(0.0), Measured: new(0.0312), High: new(1.5), ConfidencePercent: 99.9, Verdict: fidelity.Pass, Note: "one-sided"},
			{Name: "rate_bit_per_second", Measured: new(12345678.9), Verdict: fidelity.Inconclusive},
		},
		Notes: []string{"the machine was busy"},
	}
	if r.Verdict == fidelity.Fail {
		p.Overflow = new(uint64(17))
	}
	r.Places = []fidelity.PlaceResult{p}
	return r, nil
}

func (a *fakeAgent) Targets(context.Context) ([]target.Target, error) {
	d, _ := labfile.Builtin("pg")
	return d.Resolve()
}

func (a *fakeAgent) AddTarget(_ context.Context, d target.Definition) (target.Target, error) {
	to := target.Place{Device: "veth1", Index: 7, Hook: target.Egress, Match: d.Flows()}
	from := to
	from.Hook, from.Match = target.Ingress, to.Match.Reverse()
	return target.Target{Name: d.Name, Definition: d, Origin: target.OriginAdded, To: to, From: from}, nil
}

func (a *fakeAgent) RemoveTarget(_ context.Context, name string, force bool) ([]fault.Fault, error) {
	on := []fault.Fault{}
	for _, f := range a.faults {
		if f.Spec.Target == name {
			on = append(on, f)
		}
	}
	if len(on) > 0 && !force {
		return nil, fmt.Errorf("target remove: %w: there are faults on %s: %s", fault.ErrConflict, name, on[0].ID)
	}
	return on, nil
}

func (a *fakeAgent) Resolve(ctx context.Context, name string) (target.Target, error) {
	ts, err := a.Targets(ctx)
	if err != nil {
		return target.Target{}, err
	}
	for _, t := range ts {
		if t.Name == name {
			return t, nil
		}
	}
	return target.Target{}, fmt.Errorf("%w %q, known: pg", target.ErrUnknown, name)
}

// heldLab is a lab of the fake's that somebody holds.
type heldLab struct {
	a    *fakeAgent
	info lab.Info
	made bool
}

func (h heldLab) Info() lab.Info { return h.info }

func (h heldLab) Release(ctx context.Context) (err error) {
	if h.made {
		_, err = h.a.LabDown(ctx, h.info.Name)
	}
	return err
}

func (a *fakeAgent) HoldLab(ctx context.Context, r labfile.Request, progress func(string), _ func(error)) (LabHold, error) {
	for _, l := range a.labs {
		if l.Name == r.Name {
			return heldLab{a: a, info: l}, nil
		}
	}
	l, err := a.LabUp(ctx, r, progress)
	return heldLab{a, l, true}, err
}

func (a *fakeAgent) LabUp(_ context.Context, r labfile.Request, progress func(string)) (lab.Info, error) {
	name := r.Name
	if name != "pg" {
		return lab.Info{}, fmt.Errorf("unknown lab %q, known: pg", name)
	}
	progress("making the namespaces")
	progress("starting PostgreSQL")
	l := lab.Info{
		Name: "pg", Targets: []string{"pg"}, Up: noon,
		Nodes: []lab.NodeInfo{
			{Name: "client", Namespace: "netem-pg-client", Addresses: []netip.Prefix{netip.MustParsePrefix("10.77.0.1/24")}},
			{Name: "wire", Namespace: "netem-pg-wire"},
			{
				Name: "server", Namespace: "netem-pg-server", Addresses: []netip.Prefix{netip.MustParsePrefix("10.77.0.2/24")},
				Services: []lab.ServiceInfo{{
					Name: "postgres", Kind: "postgres", PID: 4711, Address: netip.MustParseAddrPort("10.77.0.2:5432"), Log: "/run/netemd/pg.log",
				}},
			},
		},
	}
	a.labs = append(a.labs, l)
	return l, nil
}

func (a *fakeAgent) Lab(ctx context.Context, name string) (lab.Info, []byte, error) {
	ls, err := a.Labs(ctx)
	if err != nil {
		return lab.Info{}, nil, err
	}
	for _, l := range ls {
		if l.Name == name {
			d, _ := labfile.Builtin(name)
			text, err := labfile.YAML(d)
			return l, text, err
		}
	}
	return lab.Info{}, nil, fmt.Errorf("%w %q: no lab is up", lab.ErrUnknown, name)
}

func (a *fakeAgent) LabServer(_ context.Context, lab, service string, settings []byte, reset bool) (client.Server, error) {
	a.served = append(a.served, fmt.Sprintf("%s/%s %q %v", lab, service, settings, reset))
	return client.Server{Counters: map[string]int64{"hits": 810, "ok": 3}, Settings: "status: 503\n"}, nil
}

func (a *fakeAgent) LabDiff(ctx context.Context, r labfile.Request) ([]lab.Difference, error) {
	if _, _, err := a.Lab(ctx, r.Name); err != nil || r.Text == nil {
		return nil, err
	}
	return []lab.Difference{
		{Path: "nodes.web.sysctls.net.ipv4.tcp_syn_retries", Want: "3", Have: "6"},
		{Path: "links[1]", Want: "web-db, direct"}, {Path: "nodes.old", Have: "forward false"},
	}, nil
}

func (a *fakeAgent) LabDown(_ context.Context, name string) (bool, error) {
	had := len(a.labs) > 0
	a.labs = nil
	return had, nil
}

func (a *fakeAgent) Labs(context.Context) ([]lab.Info, error) { return a.labs, nil }

func (a *fakeAgent) Probe(ctx context.Context, r probe.Request, progress func(done, count int)) (probe.Result, error) {
	if a.during != nil {
		a.during()
	}
	if ctx.Err() != nil {
		return probe.Result{}, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var samples []probe.Sample
	for i := range r.Count {
		took := 5 + float64(i%10)/10
		var cause probe.Cause
		for _, f := range a.faults {
			switch {
			case f.Spec.Packet != nil && r.Layer == "direct":
				took, cause = lossy(i, took)
			case f.Spec.Toxics != nil && r.Layer == "proxy":
				took += 5 * float64(f.Spec.Toxics[0].Latency) / 1e6
				cause = probe.Queueing
			}
		}
		s := probe.Sample{Seq: i, EndNS: int64(took * 1e6), Class: probe.OK}
		if took > 150 {
			s.Cause = cause
			if cause != probe.Queueing {
				s.Events = []probe.Retransmission{{Cause: cause}}
			}
		}
		samples = append(samples, s)
		progress(i+1, r.Count)
	}
	return probe.Result{Summary: probe.Summarize(r.Target, r.Layer, samples, probe.EvidenceTraced), Samples: samples}, nil
}

// RunProbe makes the same calls up, and gives them out.
func (a *fakeAgent) RunProbe(ctx context.Context, r probe.Request, run client.ProbeRun) (probe.Result, error) {
	r = r.WithDefaults()
	a.request, a.run = r, run
	result, err := a.Probe(ctx, r, func(done, count int) {
		run.Progress(probe.Progress{Done: done, Count: count, Elapsed: time.Duration(done) * 60 * time.Millisecond})
	})
	for _, s := range result.Samples {
		if run.Samples == nil {
			break
		}
		line, err := json.Marshal(s)
		if err == nil {
			err = run.Samples(append(line, '\n'), 0)
		}
		if err != nil {
			return result, err
		}
	}
	result.Samples = nil
	return result, err
}

// lossy is the duration and cause of the i-th call under loss.
func lossy(i int, took float64) (float64, probe.Cause) {
	switch i % 20 {
	case 0, 1, 2, 3, 4, 5, 6:
		return took, ""
	case 7, 8, 9, 10, 11:
		return took + 208, probe.TLP
	case 12, 13, 14:
		return took + 410, probe.RTO
	case 15:
		return took + 2040, probe.SYNRetransmit
	}
	return took + 1030, probe.SYNRetransmit
}

func (a *fakeAgent) Profiles(context.Context) ([]profile.Profile, error) { return a.profiles, a.err }

func (a *fakeAgent) Features(context.Context) (feature.Report, error) { return a.features, a.err }

func (a *fakeAgent) Version(context.Context) (client.AgentVersion, error) {
	return client.AgentVersion{
		Version: "v0.1.0", GoVersion: "go1.26.8", Kernel: "6.18.5", SchemaVersion: 1, PID: 42, StateDir: "/run/netemd",
	}, nil
}

// world is an Env with what was written and run.
type world struct {
	agent    *fakeAgent
	dialErr  error
	env      map[string]string
	stale    []string
	ssh      string
	terminal bool
	commands [][]string
	given    []string // the variables of the last command's own
	code     int
	// notFound is why there is no command.
	notFound error
	group    func(context.Context, Command) (int, error)
	// meanwhile is called while a command runs.
	meanwhile func()

	// output is instead of stdout.
	output io.Writer

	// stdin is the standard input; nil is an empty one.
	stdin io.Reader

	stdout, stderr strings.Builder
	endpoint       client.Endpoint
}

func (w *world) run(ctx context.Context, args ...string) int {
	var stdin io.Reader = strings.NewReader("")
	if w.stdin != nil {
		stdin = w.stdin
	}
	var out io.Writer = &w.stdout
	if w.output != nil {
		out = w.output
	}
	return Run(ctx, Env{
		Args: args, Stdin: stdin, Stdout: out, Stderr: &w.stderr,
		Getenv:         func(name string) string { return w.env[name] },
		StdoutTerminal: w.terminal, StderrTerminal: w.terminal,
		Now: func() time.Time { return noon },
		Dial: func(e client.Endpoint) (Agent, error) {
			w.endpoint = e
			if w.dialErr != nil {
				return nil, w.dialErr
			}
			return w.agent, nil
		},
		Group: w.group,
		Command: func(_ context.Context, c Command) (int, error) {
			w.given = c.Env
			w.commands = append(w.commands, append([]string{c.Namespace}, c.Argv...))
			if w.meanwhile != nil {
				w.meanwhile()
			}
			if w.agent != nil {
				w.agent.mu.Lock()
				w.agent.ran = true
				w.agent.mu.Unlock()
			}
			fmt.Fprintln(c.Stdout, "the command's own output")
			return w.code, nil
		},
		FindCommand: func(string) (int, error) {
			if w.notFound != nil {
				return exitNotFound, w.notFound
			}
			return 0, nil
		},
		StaleNamespaces: func() ([]string, error) { return w.stale, nil },
		SSHConnection:   func() string { return w.ssh },
		Namespaces:      func() ([]string, error) { return []string{"blue", "green"}, nil },
		Devices: func(namespace string) ([]string, error) {
			return map[string][]string{"": {"lo", "eth0"}, "blue": {"lo", "v0"}}[namespace], nil
		},
		LookupHost: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host != "db.example" {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			return []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}, nil
		},
	})
}

// shellWords cuts a line as a shell does that only knows quotes.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	begun := false
	for _, r := range line + " " {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && r == ' ':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	return words
}
