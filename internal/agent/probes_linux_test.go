package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/grpc/peer"

	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/prober"
	"netemd/internal/testenv"
	"netemd/probe"
)

// TestStopIsTheOwners: a run is stopped by its owner's id for it, and by nobody else's.
func TestStopIsTheOwners(t *testing.T) {
	var p probing
	ctx, stop := context.WithCancelCause(t.Context())
	forget := p.name(probeRun{"uid 1", "x"}, "pg", stop)
	if p.stop("uid 2", "x") || p.stop("uid 1", "y") || ctx.Err() != nil {
		t.Fatal("somebody else's stop ended it")
	}
	if p.target("uid 1", "x") != "pg" || p.target("uid 2", "x") != "" {
		t.Error("the target is not the owner's run's")
	}
	p.name(probeRun{"uid 1", "x"}, "other", func(error) { t.Error("the second run of an id was stopped") })()
	if !p.stop("uid 1", "x") || context.Cause(ctx) != errProbeStopped { //nolint:errorlint // the cause itself
		t.Errorf("not stopped: %v", context.Cause(ctx))
	}
	forget()
	if p.stop("uid 1", "x") {
		t.Error("a run that has ended was stopped")
	}
}

// TestLoadWithinLimits: an open loop above the configuration's limits is refused by name.
func TestLoadWithinLimits(t *testing.T) {
	a := &Agent{cfg: Config{Settings: config.Config{Limits: config.Limits{ProbeRate: 100, ProbeInFlight: 10}}}}
	load := func(rate float64, inFlight int) probe.Request {
		return probe.Request{Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 1, To: rate}}, MaxInFlight: inFlight}}
	}
	for _, r := range []probe.Request{{}, load(100, 10)} {
		if err := a.withinLimits(r); err != nil {
			t.Error(err)
		}
	}
	for field, r := range map[string]probe.Request{"rate": load(100.5, 10), "max_in_flight": load(1, 11)} {
		var e *probe.RequestError
		if err := a.withinLimits(r); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestProbesFromElsewhere: who is on another host gets no connection of the agent's to what is
// not a lab's.
func TestProbesFromElsewhere(t *testing.T) {
	testenv.Root(t)
	a, err := New(t.Context(), Config{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	r := probe.Request{Kind: probe.KindTCP, Target: "host:127.0.0.1:9", Count: 1}
	for from, denied := range map[string]bool{"": false, "192.0.2.1:50000": true} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: peerInfo{owner: "x", address: from}})
		_, err := a.measure(ctx, "x", r, prober.Config{})
		if errors.Is(err, fault.ErrDenied) != denied {
			t.Errorf("from %q: %v", from, err)
		}
	}
}
