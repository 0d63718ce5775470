package netemtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"netemd/internal/client"
	"netemd/internal/content"
	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// Injection is a fault that this process holds, outside of a test: in a test it is a Fault. It
// is safe for concurrent use.
type Injection struct {
	s       *Session
	holding *experiment.Holding
	id      string

	mu   sync.Mutex
	spec fault.Spec // as it was changed last
	over bool
	// clearing says that the fault stood when its own end was asked for.
	clearing bool
	last     fault.Fault
	ended    error
	// changing says that what is changed is so by this process.
	changing bool
	// gaps are what took it out of force.
	gaps []string
}

// inject makes a fault; base has what is not of the user's spec, and told is called with what
// happens to it.
func (s *Session) inject(ctx context.Context, spec Spec, base fault.Spec, told func(fault.Event, string)) (*Injection, error) {
	f, err := spec.spec()
	if err != nil {
		return nil, err
	}
	f.Beside, f.Wait = base.Beside, base.Wait
	if until, ok := ctx.Deadline(); ok && f.Wait == 0 {
		f.Wait = time.Until(until)
	}
	if spec.Wait != 0 {
		f.Wait = spec.Wait
	}
	f.Wait = min(max(f.Wait, 0), fault.MaxTTL)
	if s.agent != nil {
		s.agent.prepare()
	}
	i := &Injection{s: s, spec: f}
	i.holding, err = experiment.Hold(ctx, holder{s.client}, f, func(e fault.Event, words string) {
		if e.Kind == "changed" && i.changed(e.Fault) {
			return
		}
		i.note(e, words)
		if told != nil {
			told(e, words)
		}
	})
	if err != nil {
		return nil, s.unsupported(ctx, err)
	}
	i.id = i.holding.Fault.ID
	s.mu.Lock()
	closed := s.closed
	s.faults[i] = true
	s.mu.Unlock()
	if closed {
		return nil, errors.Join(errors.New("the session was closed meanwhile"), i.Clear(ctx))
	}
	return i, nil
}

// holder is the client as experiment wants it.
type holder struct{ c *client.Client }

func (h holder) Hold(ctx context.Context, s fault.Spec, notify func(fault.Event, string)) (experiment.Held, error) {
	held, err := h.c.Hold(ctx, s, notify)
	if err != nil {
		return nil, err
	}
	return held, nil
}

// changed reports whether a change of the fault is this process's own.
func (i *Injection) changed(f fault.Fault) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.changing || f.Spec.Packet != nil && i.spec.Packet != nil && *f.Spec.Packet == *i.spec.Packet
}

// note keeps what took the fault out of force, or made another one of it.
func (i *Injection) note(e fault.Event, words string) {
	switch e.Kind {
	case "lost", "drifted", "expired", "changed", client.Gone:
	case "cleared":
		if i.isClearing() {
			return
		}
	default:
		return
	}
	text := e.Kind
	if e.Kind == "cleared" || e.Kind == "changed" {
		text += " by somebody else"
	}
	if why := cmp.Or(e.Fault.Reason, words); why != "" {
		text += ": " + why
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gaps = append(i.gaps, text)
}

func (i *Injection) isClearing() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.clearing
}

// ID is the agent's name of the fault, by which netemctl knows it.
func (i *Injection) ID() string { return i.id }

// Target is the agent's name of what it is aimed at: "shop-k3fq1/api".
func (i *Injection) Target() string { return i.holding.Fault.Spec.TargetName() }

// String says what was injected: "kqv1: loss 20% to pg".
func (i *Injection) String() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.id + ": " + words(i.spec)
}

// Change replaces the impairment of a fault that has one, in place: nothing is lost in between,
// and its counters begin anew.
func (i *Injection) Change(ctx context.Context, n qdisc.Netem) error {
	i.mu.Lock()
	i.changing = true
	i.mu.Unlock()
	f, err := i.s.client.Change(ctx, i.id, whole(n))
	i.mu.Lock()
	i.changing = false
	i.mu.Unlock()
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.spec.Packet = f.Spec.Packet
	return nil
}

// Clear ends the fault. The error says why it did not stand to this moment, or that it could
// not be ended, which the agent then goes on trying. A second Clear does nothing.
func (i *Injection) Clear(ctx context.Context) error {
	i.mu.Lock()
	over, ended := i.over, i.ended
	i.over = true
	i.mu.Unlock()
	if over {
		return ended
	}
	// Somebody else's clear may be on its way here: it was before this one where the agent has
	// the fault no more.
	f, err := i.s.client.Get(context.WithoutCancel(ctx), i.id)
	i.mu.Lock()
	i.clearing = !errors.Is(err, fs.ErrNotExist) && f.State != fault.Cleared
	i.mu.Unlock()
	last, err := i.holding.Release(ctx)
	if errors.Is(err, client.ErrStopped) {
		err = fmt.Errorf("the agent stopped while the fault stood: %w", err)
	}
	i.s.mu.Lock()
	delete(i.s.faults, i)
	i.s.mu.Unlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last, i.ended = last, err
	return err
}

// Stats are the packets that the fault met.
type Stats struct {
	// State is active, lost, drifted, cleared or expired.
	State string
	// Seen are the packets that passed the fault since it was made, or last changed, and Lost
	// those of them that it dropped. Overflow were dropped by its full queue; Late and
	// Refused by an engine that had stood still, or by the device.
	Seen, Lost, Overflow, Late, Refused uint64
	// Delayed were held for longer than 0 s, Opened passed unimpaired since the engine was
	// late.
	Delayed, Duplicated, Reordered, Corrupted, Opened uint64
	// Chosen are the packets that a Rule acted on.
	Chosen uint64
	// Missing names the counters that the engine cannot give, which are 0 for that reason.
	Missing []string
	// Errors are the requests that were answered with an error, Aborted those that were reset; Seen and
	// Delayed are requests then, too.
	Errors, Aborted uint64
	requests        bool
}

// Stats are the packets, or the requests, so far, also after Clear. Toxics count none.
func (i *Injection) Stats(ctx context.Context) (Stats, error) {
	i.mu.Lock()
	over, last := i.over, i.last
	i.mu.Unlock()
	if over {
		return stats(last), nil
	}
	f, err := i.s.client.Get(ctx, i.id)
	if err != nil {
		return Stats{}, err
	}
	return stats(f), nil
}

func stats(f fault.Fault) Stats {
	c := f.Counters
	return Stats{
		State: string(f.State), Seen: c.Seen, Lost: c.Lost, Overflow: c.Overflow, Late: c.Late, Refused: c.Refused,
		Delayed: c.Delayed, Duplicated: c.Duplicated, Reordered: c.Reordered, Corrupted: c.Corrupted, Opened: c.Opened,
		Chosen: f.Chosen(), Missing: slices.Clone(f.CountersMissing),
		Errors: c.Errors, Aborted: c.Aborted, requests: f.Spec.Request != nil,
	}
}

// Packet is one that a Rule chose.
type Packet struct {
	Time time.Time
	// Source and Destination are "10.77.0.1:40000", or addresses for protocols without ports.
	Source, Destination string
	// Flags, Sequence and Payload belong to TCP: its header's flags and number, and the
	// bytes of data.
	Flags             uint8
	Sequence, Payload uint32
}

// Packets are those that a Rule has chosen so far, the oldest first; also for a minute after
// Clear. Of very many the last 10,000 are kept.
func (i *Injection) Packets(ctx context.Context) (all []Packet, err error) {
	err = i.s.client.Packets(ctx, i.id, false, func(l content.Log) {
		for _, r := range l.Records {
			all = append(all, Packet{Time: r.Wall, Source: r.Source, Destination: r.Destination, Flags: r.Flags, Sequence: r.Sequence, Payload: r.Payload})
		}
	})
	return all, err
}
