package cli

import (
	"context"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/fault"
)

const (
	// beginLimit is how long a run waits until it is told of faults.
	beginLimit = 2 * time.Second
	// maxEvents are the events that are told of one run.
	maxEvents = 10_000
)

// followFaults tells of the faults that stand, and of what happens to any of them until it is
// stopped; renewals are left out. tell is called by one goroutine at a time. A run is made
// without them where the agent does not tell (a warning says so), since they are beside the
// point of it.
func (a *app) followFaults(ctx context.Context, agent FaultReader, tell func(experiment.Event)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	begun, done := make(chan struct{}), make(chan struct{})
	var watched error // once done is closed
	events := make(chan fault.Event, 64)
	go func() {
		watched = agent.WatchFrom(ctx, 0, "", func() { close(begun) }, func(e fault.Event) {
			select {
			case events <- e: // before the end is looked at
				return
			default:
			}
			select {
			case events <- e:
			case <-ctx.Done():
			}
		})
		close(events)
		close(done)
	}()
	limit := time.NewTimer(beginLimit)
	defer limit.Stop()
	var err error
	select {
	case <-begun:
	case <-done:
		err = watched
	case <-limit.C:
		err = context.DeadlineExceeded
	}
	if err != nil {
		if ctx.Err() == nil {
			a.warn([]string{"what happens to faults meanwhile is not told: " + oneLine(err)})
		}
		cancel()
		<-done
		return func() {}
	}
	standing, _ := agent.List(ctx) // without it, only what happens from now on is told
	told := make(chan struct{})
	go func() {
		defer close(told)
		for _, f := range standing {
			tell(eventOf(fault.Event{Time: f.Applied, Kind: experiment.Standing, Fault: f}))
		}
		count := 0
		for e := range events {
			if count++; e.Kind != "renewed" && count <= maxEvents {
				tell(eventOf(e))
			}
		}
	}()
	return func() {
		cancel()
		<-done // its error is ours, or that the agent went, which the probe says itself
		<-told
	}
}

// eventOf says an event in words.
func eventOf(e fault.Event) experiment.Event {
	f := e.Fault
	return experiment.Event{
		TimeNS: e.Monotonic, Time: e.Time, Event: e.Kind, Fault: f.ID, Target: subject(f.Spec), Asked: words(f.Spec),
		State: string(f.State), Engine: string(f.Engine), Owner: f.Spec.Owner, Reason: f.Reason,
	}
}
