package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"netemd/internal/fault"
	"netemd/probe"
)

// agent is a fake with a path: direct calls take 5 ms, 100 ms more under a packet
// fault; calls through the proxy take 6 ms, and turns times the toxic's latency.
type agent struct {
	// late is how long a fault takes to stand.
	late   time.Duration
	mu     sync.Mutex
	next   int
	faults map[string]fault.Fault
	log    []string

	turns float64
	// counters are what a packet fault has counted when it is looked at.
	counters fault.Counters
	// state is what Get says; gone makes it fail.
	state fault.State
	gone  bool
	// unhealthy makes one direct call in ten fail without a fault.
	unhealthy bool
	// noSuccess makes all calls under a packet fault fail.
	noSuccess bool
	// during is called while a probe runs, with the number of faults that stand.
	during   func(layer string, faults int)
	applyErr error
	renewErr error
	// notify is the last holder's.
	notify func(fault.Event, string)
	// busy is added to every call, in ms; settle is taken off after the third run.
	busy, settle float64
	runs         int
	// asked are the requests, endless is how many calls one without a count makes.
	asked   []askedProbe
	endless int
}

type askedProbe struct {
	probe.Request
	row string
}

func newAgent() *agent {
	return &agent{
		faults: map[string]fault.Fault{}, turns: 5, state: fault.Active, counters: fault.Counters{Seen: 3000, Lost: 600},
	}
}

func (a *agent) Apply(ctx context.Context, s fault.Spec) (fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.applyErr != nil {
		return fault.Fault{}, a.applyErr
	}
	if ctx.Err() != nil {
		return fault.Fault{}, errors.New("an apply was cut short")
	}
	a.next++
	f := fault.Fault{ID: fmt.Sprintf("f%d", a.next), Spec: s, State: fault.Active, Engine: fault.EBPF, EngineReason: "because"}
	if s.Toxics != nil {
		f.Engine = fault.Stream
	}
	a.faults[f.ID] = f
	a.log = append(a.log, "apply "+f.ID)
	return f, nil
}

func (a *agent) Get(ctx context.Context, id string) (fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, ok := a.faults[id]
	if !ok || a.gone || ctx.Err() != nil {
		return fault.Fault{}, fs.ErrNotExist
	}
	f.State = a.state
	if f.Spec.Packet != nil {
		f.Counters = a.counters
	}
	return f, nil
}

// Hold makes a fault that Release ends. Before the end it is what Get says.
func (a *agent) Hold(ctx context.Context, s fault.Spec, notify func(fault.Event, string)) (Held, error) {
	time.Sleep(a.late)
	f, err := a.Apply(ctx, s)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notify = notify
	return &held{a, f}, err
}

type held struct {
	a *agent
	f fault.Fault
}

func (h *held) Fault() fault.Fault { return h.f }

func (h *held) Renew() error {
	h.a.mu.Lock()
	defer h.a.mu.Unlock()
	h.a.log = append(h.a.log, "renew "+h.f.ID)
	return h.a.renewErr
}

func (h *held) Release(ctx context.Context) (fault.Fault, error) {
	whole := context.WithoutCancel(ctx)
	last, lookErr := h.a.Get(whole, h.f.ID)
	if lookErr != nil {
		last = h.f
	}
	_, err := h.a.Clear(whole, fault.Selector{ID: h.f.ID})
	return last, errors.Join(lookErr, err)
}

func (a *agent) Clear(ctx context.Context, s fault.Selector) ([]fault.Fault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return nil, errors.New("a clear was cut short")
	}
	f := a.faults[s.ID]
	delete(a.faults, s.ID)
	a.log = append(a.log, "clear "+s.ID)
	return []fault.Fault{f}, nil
}

func (a *agent) Probe(ctx context.Context, row string, r probe.Request, progress func(done, count int)) (probe.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, askedProbe{r, row})
	if r.Count == 0 {
		r.Count = a.endless
	}
	if a.during != nil {
		a.during(r.Layer, len(a.faults))
	}
	if ctx.Err() != nil {
		return probe.Result{}, ctx.Err()
	}
	took, class := 5.0+a.busy, probe.OK
	if r.Layer == "proxy" {
		took++
	}
	if a.runs++; a.runs > 3 {
		took -= a.settle
	}
	impaired := false
	for _, f := range a.faults {
		switch {
		case f.Spec.Packet != nil && r.Layer == "direct":
			impaired = true
			took += 100
			if a.noSuccess {
				class = probe.Timeout
			}
		case f.Spec.Toxics != nil && r.Layer == "proxy":
			took += a.turns * ms(f.Spec.Toxics[0].Latency)
		}
	}
	var samples []probe.Sample
	for i := range r.Count {
		c := class
		if a.unhealthy && !impaired && i%10 == 0 {
			c = probe.Reset
		}
		s := probe.Sample{Seq: i, EndNS: int64(took * 1e6), Class: c}
		if s.Duration() > probe.SlowThreshold {
			s.Cause = probe.Unknown
		}
		samples = append(samples, s)
		progress(i+1, r.Count)
	}
	return probe.Result{Summary: probe.Summarize(r.Target, r.Layer, samples, probe.EvidenceTraced), Samples: samples}, nil
}
