package agent

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"netemd/internal/client"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/schedule"
	"netemd/namespaces"
	"netemd/qdisc"
)

// flowing sends a numbered UDP packet each 2 ms from a to that port in b, until stop, which
// returns when each was sent and how long it took; no time for one that did not arrive.
func flowing(t *testing.T, a, b string, port uint16) (stop func() (sent []time.Time, took []time.Duration)) {
	t.Helper()
	var in, out *net.UDPConn
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("10.78.0.2"), port))
	open := func(ns string, f func() error) {
		if err := namespaces.Do(t.Context(), ns, f); err != nil {
			t.Fatal(err)
		}
	}
	open(b, func() (err error) { in, err = net.ListenUDP("udp", to); return err })
	open(a, func() (err error) { out, err = net.DialUDP("udp", nil, to); return err })
	_ = in.SetReadBuffer(1 << 20)
	var (
		sent    []time.Time
		arrived = map[uint32]time.Time{}
		all     sync.WaitGroup
		done    = make(chan struct{})
	)
	all.Go(func() {
		buf := make([]byte, 64)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			if n == 4 {
				arrived[binary.BigEndian.Uint32(buf)] = time.Now()
			}
		}
	})
	all.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				time.Sleep(300 * time.Millisecond) // for what is under way
				_ = in.Close()
				return
			case <-tick.C:
				now := time.Now()
				if _, err := out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(sent)))); err == nil {
					sent = append(sent, now)
				}
			}
		}
	})
	return func() ([]time.Time, []time.Duration) {
		close(done)
		all.Wait()
		_ = out.Close()
		took := make([]time.Duration, len(sent))
		for i, s := range sent {
			if at, ok := arrived[uint32(i)]; ok {
				took[i] = at.Sub(s)
			}
		}
		return sent, took
	}
}

// span is a time in which one impairment was in force for certain: from when its step was made
// to when the next one was due.
type span struct {
	number     uint64
	begin, end time.Time
	packet     qdisc.Netem
}

// spans applies s and follows its steps to the end.
func spans(t *testing.T, c *client.Client, s fault.Spec) (made []span, last fault.Fault) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events, begun := make(chan fault.Event, 1000), make(chan struct{})
	go func() { // before it is applied: on a slow machine steps pass until a watch stands
		defer close(events)
		_ = c.WatchFrom(ctx, 0, "", func() { close(begun) }, func(e fault.Event) { events <- e })
	}()
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatal("the watch does not begin")
	}
	f := apply(t, c, s)
	take := func(f fault.Fault) {
		if st := f.Step; st != nil && (len(made) == 0 || made[len(made)-1].number < st.Number) {
			made = append(made, span{st.Number, st.Began.Add(st.Late), st.Next, *f.Spec.Packet})
		}
	}
	take(f)
	for e := range events {
		if e.Fault.ID != f.ID {
			continue
		}
		last = e.Fault
		if e.Kind == "step" {
			take(e.Fault)
		}
		if e.Kind == "expired" || e.Fault.Step != nil && e.Fault.Step.Over {
			cancel()
		}
	}
	return made, last
}

// judge compares what arrived with what each span had in force. opened passed since the engine
// was late.
func judge(t *testing.T, made []span, sent []time.Time, took []time.Duration, opened uint64) (lossy, clean int) {
	t.Helper()
	passed := uint64(0)
	for _, m := range made {
		n, came, early := 0, 0, 0
		for i, s := range sent {
			// What is sent at a change itself may meet either.
			if s.Before(m.begin) || !s.Before(m.end.Add(-2*time.Millisecond)) {
				continue
			}
			n++
			if took[i] > 0 {
				came++
			}
			if took[i] > 0 && took[i] < m.packet.Delay {
				early++
			}
		}
		t.Logf("%d: %v: %d sent, %d arrived, %d early", m.number, m.packet, n, came, early)
		switch m.packet.Loss {
		case 100:
			passed += uint64(came)
			lossy += n
		default:
			passed += uint64(early)
			clean += n
			if came != n {
				t.Errorf("%d: %v: %d of %d arrived", m.number, m.packet, came, n)
			}
		}
	}
	if passed > opened {
		t.Errorf("%d packets passed what was in force, and the engine was late for %d", passed, opened)
	}
	return lossy, clean
}

// A schedule of steps and a ramp of a queue, measured packet by packet.
func TestScheduleIsMeasured(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	stop := flowing(t, a, b, 5001)
	half := 500 * time.Millisecond
	step := func(n qdisc.Netem) schedule.Step {
		return schedule.Step{For: half, Impairment: schedule.Impairment{Packet: n}}
	}
	ramp := step(qdisc.Netem{Delay: 30 * time.Millisecond})
	ramp.Ramp = &schedule.Ramp{To: schedule.Impairment{Packet: qdisc.Netem{Delay: 60 * time.Millisecond}}, Every: half / 2}
	s := &schedule.Schedule{Steps: []schedule.Step{
		step(qdisc.Netem{}), step(qdisc.Netem{Loss: 100}), step(qdisc.Netem{}), ramp, step(qdisc.Netem{}),
	}}
	made, last := spans(t, c, fault.Spec{Selector: ports(a, port(5001)), Schedule: s})
	sent, took := stop()
	if len(made)+int(last.Step.Skipped) < 5 {
		t.Errorf("%d steps were told: %+v, last %+v", len(made), made, last.Step)
	}
	lossy, clean := judge(t, made, sent, took, last.Total.Opened)
	if lossy == 0 && last.Step.Skipped == 0 || clean == 0 {
		t.Errorf("%d packets under the loss, %d beside it", lossy, clean)
	}
	delays := map[time.Duration]bool{}
	for _, m := range made {
		delays[m.packet.Delay] = true
	}
	if last.Step.Skipped == 0 && len(delays) != 3 {
		t.Errorf("delays %v, want none and two of the ramp", delays)
	}
	none(t, c)
	if got := arrive(t, a, b, 5001, 50); got != 50 {
		t.Errorf("afterwards %d of 50 arrive", got)
	}
}

// Flapping, counted against its timetable.
func TestFlappingIsMeasured(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	stop := flowing(t, a, b, 5001)
	s := &schedule.Schedule{Jitter: 20, Seed: 3, Steps: []schedule.Step{{
		For: 2 * time.Second, Impairment: schedule.Impairment{Packet: qdisc.Netem{Loss: 100}}, Flap: &schedule.Flap{Period: 400 * time.Millisecond, Duty: 50},
	}}}
	made, last := spans(t, c, fault.Spec{Selector: ports(a, port(5001)), Schedule: s})
	sent, took := stop()
	judge(t, made, sent, took, last.Total.Opened)
	// Each that was made is one of the timetable's, at its time.
	cursor := s.Begin()
	for _, m := range made {
		for cursor.Moment().Number < m.number && cursor.Next() {
		}
		if want := cursor.Moment(); want.Number != m.number || want.Packet != m.packet || !last.Applied.Add(want.End).Equal(m.end) {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
	if n, _ := s.Count(); uint64(len(made))+last.Step.Skipped < n-1 {
		t.Errorf("%d of %d changes made, %d skipped", len(made), n, last.Step.Skipped)
	}
}

// A schedule goes on over a stop that keeps faults.
func TestScheduleIsKept(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	dir := filepath.Join(t.TempDir(), "s")
	s := &schedule.Schedule{Rounds: schedule.Forever, Steps: []schedule.Step{
		{For: 300 * time.Millisecond}, {For: 300 * time.Millisecond, Impairment: schedule.Impairment{Packet: qdisc.Netem{Loss: 100}}},
	}}
	var f fault.Fault
	t.Run("first life", func(t *testing.T) {
		_, c := serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) { c.Keep = true })})
		f = apply(t, c, fault.Spec{Selector: ports(a, port(5001)), Schedule: s})
	})
	t.Run("second life", func(t *testing.T) {
		_, c := serveWith(t, Config{StateDir: dir})
		now, err := c.Get(t.Context(), f.ID)
		if err != nil || now.Step == nil || now.Spec.Schedule == nil {
			t.Fatalf("%+v, %v", now, err)
		}
		want := s.At(now.Step.Began.Sub(f.Applied))
		if now.Step.Number != want.Number || *now.Spec.Packet != want.Packet || !now.Applied.Equal(f.Applied) {
			t.Errorf("step %+v of %+v, want %+v", now.Step, now, want)
		}
		first := now.Step.Number
		eventually(t, "it goes on", func() bool {
			now, err := c.Get(t.Context(), f.ID)
			return err == nil && now.Step.Number > first+1 && now.State == fault.Active
		})
		if _, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil {
			t.Error(err)
		}
	})
}

// An agent that is killed in the middle of a schedule leaves nothing in force, and nothing that
// the next start does not find.
func TestKilledInASchedule(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	dir := filepath.Join(t.TempDir(), "s")
	killed := actor{Serve: dir}.start(t, start)
	c, err := client.Open(client.Endpoint{Socket: filepath.Join(dir, "netemd.sock")})
	if err != nil {
		t.Fatal(err)
	}
	s := &schedule.Schedule{Rounds: schedule.Forever, Steps: []schedule.Step{
		{For: 50 * time.Millisecond, Impairment: schedule.Impairment{Packet: qdisc.Netem{Delay: 10 * time.Millisecond}}},
		{For: 50 * time.Millisecond, Impairment: schedule.Impairment{Packet: qdisc.Netem{Loss: 100}}},
	}}
	f := apply(t, c, fault.Spec{Selector: ports(a, port(5001)), Schedule: s})
	eventually(t, "some steps", func() bool {
		now, err := c.Get(t.Context(), f.ID)
		return err == nil && now.Step.Number > 5
	})
	_ = c.Close()
	kill(killed)
	eventually(t, "what is open when the agent is dead", func() bool { return arrive(t, a, b, 5001, 20) == 20 })
	_, next := serveWith(t, Config{StateDir: dir})
	none(t, next)
}
