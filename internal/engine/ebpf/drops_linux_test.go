package ebpf

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"netemd/internal/content"
	"netemd/qdisc"
)

// Every packet that a loss drops while somebody records is in the record, with its two
// ends, and none before or after; the counters agree.
func TestRecordDrops(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		p := onPort(l.place)
		f := l.newFlow(t, client4, server4, 0, port)
		set(t, e, p, qdisc.Netem{Loss: 50, Seed: 5})
		f.burst(100) // nobody is told
		unheard := counters(t, e, p).Lost
		r, err := e.RecordDrops()
		if err != nil {
			t.Fatal(err)
		}
		second, err := e.RecordDrops()
		if err != nil {
			t.Fatal(err)
		}
		from := now()
		f.burst(500)
		until := now()
		lost := counters(t, e, p).Lost - unheard
		for _, r := range []*DropRecorder{r, second} {
			records, missed, err := r.Drain(ctx)
			if err != nil || missed != 0 || uint64(len(records)) != lost || lost == 0 {
				t.Fatalf("%d records, %d missed, %v; want %d", len(records), missed, err, lost)
			}
			recordsOfBurst(t, records, int64(from), int64(until))
			if records, _, err := r.Drain(ctx); err != nil || len(records) != 0 {
				t.Errorf("the second drain: %d records, %v", len(records), err)
			}
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
		f.burst(50)
		if records, _, err := r.Drain(ctx); err != nil || len(records) == 0 {
			t.Errorf("when another recorder has ended: %d records, %v", len(records), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, _, err := r.Drain(ctx); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a drain after the end: %v", err)
		}
		f.burst(50)
		if r, err = e.RecordDrops(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ms)
		if records, _, err := r.Drain(ctx); err != nil || len(records) != 0 {
			t.Errorf("a new recorder has %d old records, %v", len(records), err)
		}
	})
}

// recordsOfBurst are of packets of a lab's flow, within a time.
func recordsOfBurst(t *testing.T, records []content.Record, from, until int64) {
	t.Helper()
	for _, x := range records {
		want := content.Record{
			Time: x.Time, Wall: x.Wall, Source: x.Source, Destination: fmt.Sprintf("%s:%d", server4, port), Protocol: 17,
			Payload: x.Payload, Length: x.Payload + 28, Segments: 1,
		}
		if x != want || x.Time < from || x.Time > until || x.Payload == 0 {
			t.Fatalf("record %+v, want %+v within %d..%d", x, want, from, until)
		}
	}
}

// What does not fit a ring that nobody reads is counted.
func TestDropsUntold(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	set(t, e, p, qdisc.Netem{Loss: 100})
	e.hub.at.telling.Store(1)
	for range 20 {
		f.burst(500)
	}
	e.hub.at.telling.Store(0)
	c := counters(t, e, p)
	fits := uint64(dropRingSize / 88) // a record and its header
	if c.Lost > fits+100 && e.hub.at.untold.Load() < c.Lost-fits-100 {
		t.Errorf("%d lost, %d untold, %d fit", c.Lost, e.hub.at.untold.Load(), fits)
	}
	if e.hub.at.untold.Load() > c.Lost {
		t.Errorf("%d untold of %d", e.hub.at.untold.Load(), c.Lost)
	}
}

// A chosen packet is recorded too.
func TestRecordChosenDrops(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	r, err := e.RecordDrops()
	if err != nil {
		t.Fatal(err)
	}
	rule(t, e, p, content.Rule{Kind: content.Every, N: 2, Count: 3})
	f.burst(20)
	records, missed, err := r.Drain(ctx)
	if err != nil || missed != 0 || len(records) != 3 {
		t.Errorf("%d records, %d missed, %v; want 3", len(records), missed, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
