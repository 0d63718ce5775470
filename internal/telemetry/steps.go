package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Steps lets what the books of the faults work with tell how long it took: finding the
// places, choosing and asking the engine, writing down. Each is a span in the one of its
// call; what the agent does by itself is none. Without traces c stays as it is.
func (t *Telemetry) Steps(c lease.Config) lease.Config {
	if t == nil || t.tracer == nil {
		return c
	}
	s := steps{t.tracer}
	if resolve := c.Resolve; resolve != nil {
		c.Resolve = func(ctx context.Context, spec fault.Spec) (found target.Target, err error) {
			err = s.step(ctx, "resolve", func(ctx context.Context) error { found, err = resolve(ctx, spec); return err })
			return found, err
		}
	}
	if choose := c.Choose; choose != nil {
		c.Choose = func(ctx context.Context, places []target.Place) (e fault.Engine, why string, err error) {
			err = s.step(ctx, "choose", func(ctx context.Context) error { e, why, err = choose(ctx, places); return err })
			return e, why, err
		}
	}
	if protect := c.Protect; protect != nil {
		c.Protect = func(ctx context.Context, spec fault.Spec, places []target.Place) error {
			return s.step(ctx, "protect", func(ctx context.Context) error { return protect(ctx, spec, places) })
		}
	}
	if c.Journal != nil {
		c.Journal = s.journal(c.Journal)
	}
	if c.Stream != nil {
		c.Stream = stream{c.Stream, s}
	}
	if c.Requests != nil {
		c.Requests = requests{c.Requests, s}
	}
	traced := make(map[fault.Engine]lease.Engine, len(c.Engines))
	for name, e := range c.Engines {
		traced[name] = s.engine(e)
	}
	c.Engines = traced
	return c
}

// steps makes the spans.
type steps struct{ tracer trace.Tracer }

// step is f in a span, where there is one already.
func (s steps) step(ctx context.Context, name string, f func(context.Context) error) error {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return f(ctx)
	}
	ctx, span := s.tracer.Start(ctx, name)
	defer span.End()
	err := f(ctx)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

type journal struct {
	steps
	next lease.Journal
}

func (j journal) Intend(ctx context.Context, f fault.Fault, places []target.Place) error {
	return j.step(ctx, "journal intend", func(ctx context.Context) error { return j.next.Intend(ctx, f, places) })
}

func (j journal) Hold(ctx context.Context, f fault.Fault) error {
	return j.step(ctx, "journal hold", func(ctx context.Context) error { return j.next.Hold(ctx, f) })
}

func (j journal) End(ctx context.Context, id string, state fault.State) error {
	return j.step(ctx, "journal end", func(ctx context.Context) error { return j.next.End(ctx, id, state) })
}

// journal is j with spans, and takes many faults at once where j does.
func (s steps) journal(j lease.Journal) lease.Journal {
	plain := journal{s, j}
	if together, ok := j.(manyJournal); ok {
		return journalOfMany{plain, together}
	}
	return plain
}

// manyJournal is what the books ask a Journal for when several faults are made together.
type manyJournal interface {
	IntendAll(ctx context.Context, faults []fault.Fault, places [][]target.Place) error
	HoldAll(ctx context.Context, faults []fault.Fault) error
}

type journalOfMany struct {
	journal
	many manyJournal
}

func (j journalOfMany) IntendAll(ctx context.Context, faults []fault.Fault, places [][]target.Place) error {
	return j.step(ctx, "journal intend", func(ctx context.Context) error { return j.many.IntendAll(ctx, faults, places) })
}

func (j journalOfMany) HoldAll(ctx context.Context, faults []fault.Fault) error {
	return j.step(ctx, "journal hold", func(ctx context.Context) error { return j.many.HoldAll(ctx, faults) })
}

// stream leaves looks alone: they come twice a second.
type stream struct {
	lease.StreamEngine
	steps
}

func (e stream) Set(ctx context.Context, t target.Target, toxics []fault.Toxic, deadline time.Time) error {
	return e.step(ctx, "engine set", func(ctx context.Context) error { return e.StreamEngine.Set(ctx, t, toxics, deadline) })
}

func (e stream) Clear(ctx context.Context, t target.Target) error {
	return e.step(ctx, "engine clear", func(ctx context.Context) error { return e.StreamEngine.Clear(ctx, t) })
}

// engine is e with spans. What e can do beside, the books find behind it, by Unwrap; only
// what has spans of its own stands here.
func (s steps) engine(e lease.Engine) lease.Engine {
	plain := engine{e, s}
	if c, chooses := e.(lease.ContentEngine); chooses {
		return struct {
			engine
			contentEngine
		}{plain, contentEngine{c, s}}
	}
	return plain
}

type engine struct {
	lease.Engine
	steps
}

// Unwrap returns the engine without spans.
func (e engine) Unwrap() lease.Engine { return e.Engine }

func (e engine) Set(ctx context.Context, p target.Place, n qdisc.Netem, deadline time.Time) error {
	return e.step(ctx, "engine set", func(ctx context.Context) error { return e.Engine.Set(ctx, p, n, deadline) })
}

func (e engine) Clear(ctx context.Context, p target.Place) error {
	return e.step(ctx, "engine clear", func(ctx context.Context) error { return e.Engine.Clear(ctx, p) })
}

type contentEngine struct {
	lease.ContentEngine
	by steps
}

func (e contentEngine) SetContent(ctx context.Context, p target.Place, r content.Rule, deadline time.Time) error {
	return e.by.step(ctx, "engine set", func(ctx context.Context) error { return e.ContentEngine.SetContent(ctx, p, r, deadline) })
}

func (e contentEngine) ClearContent(ctx context.Context, p target.Place, r content.Rule) error {
	return e.by.step(ctx, "engine clear", func(ctx context.Context) error { return e.ContentEngine.ClearContent(ctx, p, r) })
}
