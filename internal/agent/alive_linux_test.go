package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/qdisc"
)

// hanging is an engine that clears nothing until it is let go.
type hanging struct {
	lease.Engine
	clearing, letGo chan struct{}
}

func (h hanging) Set(context.Context, target.Place, qdisc.Netem, time.Time) error { return nil }

func (h hanging) Read(context.Context, target.Place) (fault.Status, error) {
	return fault.Status{Netem: qdisc.Netem{Loss: 1}}, nil
}

func (h hanging) Clear(context.Context, target.Place) error {
	select {
	case h.clearing <- struct{}{}:
	default:
	}
	<-h.letGo
	return nil
}

func (h hanging) Close() error { return nil }

// An agent whose engine hangs is alive until a fault outlasts its end by long.
func TestAlive(t *testing.T) {
	engine := hanging{clearing: make(chan struct{}, 1), letGo: make(chan struct{})}
	place := target.Place{Device: "v0", Index: 7, Cookie: 7, Owned: true}
	a := &Agent{leases: lease.New(lease.Config{
		Engines: map[fault.Engine]lease.Engine{fault.EBPF: engine},
		Choose:  func(context.Context, []target.Place) (fault.Engine, string, error) { return fault.EBPF, "", nil },
		Resolve: func(context.Context, fault.Spec) (target.Target, error) {
			return target.Target{Name: "pg", To: place, From: place}, nil
		},
		Log: (&logged{}).logger(),
	})}
	f, err := a.leases.Apply(t.Context(), fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: 1}, Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	cleared := make(chan error, 1)
	go func() {
		_, err := a.leases.Clear(context.Background(), fault.Selector{ID: f.ID}, "")
		cleared <- err
	}()
	<-engine.clearing
	if err := a.Alive(t.Context()); err != nil {
		t.Errorf("while a lane hangs: %v", err)
	}
	fs := a.leases.List(t.Context())
	if len(fs) != 1 {
		t.Fatalf("%+v, want the one that does not go", fs)
	}
	if err := overdue(fs, f.Expires.Add(overdueTime)); err != nil {
		t.Errorf("a little late: %v", err)
	}
	if err := overdue(fs, f.Expires.Add(overdueTime+time.Second)); err == nil || !strings.Contains(err.Error(), "fault "+f.ID+" of ann to pg should have ended 2m1s ago") {
		t.Errorf("very late: %v", err)
	}
	late, cancel := context.WithTimeoutCause(t.Context(), 0, errors.New("it took too long"))
	defer cancel()
	if err := a.Alive(late); err != nil && !strings.Contains(err.Error(), "it took too long") {
		t.Errorf("without time: %v", err)
	}
	close(engine.letGo)
	if err := errors.Join(<-cleared, a.leases.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
