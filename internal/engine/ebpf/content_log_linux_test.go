package ebpf

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"netemd/internal/content"
	"netemd/internal/lease"
)

// The log that is read right after a clear has all that was chosen, also when the rule
// holds packets and its place is still there.
func TestLogAtTheEnd(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	const burst = 50
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	for i := range rounds {
		r := content.Rule{Kind: content.Every, N: 1, Hold: slower(300*ms) + time.Duration(i)*ms}
		if i%4 == 3 {
			r.Hold = 0
		}
		rule(t, e, p, r)
		f.send(burst, 64, 0)
		clearRule(t, e, p, r)
		log := ruleLogOf(t, e, p, r)
		time.Sleep(20 * ms)
		later := ruleLogOf(t, e, p, r)
		if log.Chosen != later.Chosen || log.Missed != later.Missed || len(log.Records) != len(later.Records) {
			t.Errorf("%s: chosen %d, missed %d, %d records; later %d, %d, %d", r, log.Chosen, log.Missed, len(log.Records),
				later.Chosen, later.Missed, len(later.Records))
		}
		if uint64(len(log.Records))+log.Missed != log.Chosen || log.Chosen == 0 {
			t.Errorf("%s: chosen %d, missed %d, %d records", r, log.Chosen, log.Missed, len(log.Records))
		}
	}
}

// numbered is a record whose sequence number is n.
func numbered(n int) chosen { return chosen{Time: uint64(n), Sequence: uint32(n)} }

// A log is read from where one was: each record once, and what is no longer kept is said.
func TestLogSince(t *testing.T) {
	l := &ruleLog{id: 3}
	_, at, more := l.since(content.Cursor{})
	if at != (content.Cursor{Log: 3}) {
		t.Errorf("an empty log: %+v", at)
	}
	waiting := func() bool {
		select {
		case <-more:
			return false
		default:
			return true
		}
	}
	if !waiting() {
		t.Error("nothing came, and more is told")
	}
	sent := 0
	add := func(n int) {
		for range n {
			sent++
			l.add(numbered(sent))
		}
	}
	for _, step := range []struct{ add, fresh, skipped int }{
		{1, 1, 0}, {0, 0, 0}, {3, 3, 0}, {content.MaxRecords, content.MaxRecords, 0}, {5, 5, 0},
		{content.MaxRecords + 7, content.MaxRecords, 7}, {2, 2, 0},
	} {
		add(step.add)
		if waiting() != (step.add == 0) {
			t.Errorf("%+v: waiting %t", step, waiting())
		}
		var log content.Log
		log, at, more = l.since(at)
		if len(log.Records) != step.fresh || log.Skipped != uint64(step.skipped) || log.Chosen != uint64(sent) {
			t.Fatalf("%+v: %d records, skipped %d, chosen %d", step, len(log.Records), log.Skipped, log.Chosen)
		}
		for i, r := range log.Records {
			if want := uint32(sent - step.fresh + i + 1); r.Sequence != want {
				t.Fatalf("%+v: record %d is %d, want %d", step, i, r.Sequence, want)
			}
		}
	}
	// A cursor of another log begins at the beginning of this one.
	if log, _, _ := l.since(content.Cursor{Log: 2, Read: uint64(sent)}); len(log.Records) != content.MaxRecords || log.Skipped != uint64(sent-content.MaxRecords) {
		t.Errorf("another log's cursor: %d records, skipped %d", len(log.Records), log.Skipped)
	}
}

var _ lease.ContentFollower = (*Engine)(nil)

// Who follows a rule is woken by its packets, and has each once, also behind a clear.
func TestFollowRule(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	r := content.Rule{Kind: content.Every, N: 1}
	if _, _, _, err := e.ContentSince(ctx, p, r, content.Cursor{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no rule: %v", err)
	}
	rule(t, e, p, r)
	var at content.Cursor
	got, chosen := 0, uint64(0)
	look := func() <-chan struct{} {
		t.Helper()
		log, next, more, err := e.ContentSince(ctx, p, r, at)
		if err != nil {
			t.Fatal(err)
		}
		at, got, chosen = next, got+len(log.Records), log.Chosen
		return more
	}
	for range 3 {
		more := look()
		f.send(1, 64, 0)
		select {
		case <-more:
		case <-time.After(slower(5 * time.Second)):
			if ruleCounters(t, e, p, r).Opened == 0 {
				t.Fatal("a chosen packet woke nobody")
			}
		}
	}
	clearRule(t, e, p, r)
	want := ruleLogOf(t, e, p, r).Chosen
	look()
	if uint64(got) != want || chosen != want {
		t.Errorf("%d records, %d chosen, want %d", got, chosen, want)
	}
}

// brokenReader has one record and then an error.
type brokenReader struct {
	record []byte
	err    error
}

func (r *brokenReader) ReadInto(rec *ringbuf.Record) error {
	if r.record == nil {
		return r.err
	}
	rec.RawSample, r.record = r.record, nil
	return nil
}

func (*brokenReader) Close() error { return nil }

// A reader that fails is said once, and the logs say what is missing from then on, at once.
func TestBrokenRing(t *testing.T) {
	for _, err := range []error{errors.New("the epoll is gone"), ringbuf.ErrClosed} {
		var said bytes.Buffer
		r := &ring{
			log: slog.New(slog.NewTextHandler(&said, nil)), reader: &brokenReader{record: make([]byte, 256), err: err},
			done: make(chan struct{}), logs: map[uint32]*ruleLog{},
		}
		l := r.open(0)
		r.run()
		closed := errors.Is(err, ringbuf.ErrClosed)
		if got := strings.Count(said.String(), err.Error()); closed != (said.Len() == 0) || !closed && got != 1 {
			t.Errorf("said of %v: %q", err, said.String())
		}
		if closed {
			continue
		}
		l.chosen = 4 // as the program counts
		start := time.Now()
		if got := l.read(); got.Chosen != 4 || got.Missed != 3 || len(got.Records) != 1 || time.Since(start) > logWait/2 {
			t.Errorf("%+v after %s", got, time.Since(start))
		}
		later := r.open(1)
		later.chosen = 2
		if got, _, _ := later.since(content.Cursor{}); got.Chosen != 2 || got.Missed != 2 {
			t.Errorf("a rule of later: %+v", got)
		}
	}
}

// All readers of a record find the same time, however often they read, and it is that of
// the packet.
func TestRecordTimesJoin(t *testing.T) {
	l := &ruleLog{id: 3}
	before := time.Now().Round(0)
	first := now()
	for range 1000 {
		l.add(chosen{Time: uint64(now())})
	}
	after := time.Now().Round(0)
	read := func() []content.Record {
		log, _, _ := l.since(content.Cursor{})
		return log.Records
	}
	want := read()
	for range 100 {
		for i, r := range read() {
			if !r.Wall.Equal(want[i].Wall) {
				t.Fatalf("record %d was at %s, and at %s", i, want[i].Wall, r.Wall)
			}
		}
	}
	for i, r := range want {
		if since := r.Wall.Sub(before) - time.Duration(r.Time-first); r.Wall.Before(before.Add(-ms)) || r.Wall.After(after.Add(ms)) || since > after.Sub(before)+ms || since < -ms {
			t.Errorf("record %d: %s, between %s and %s", i, r.Wall, before, after)
		}
	}
}
