package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/content"
)

func records(times ...int64) []content.Record {
	var rs []content.Record
	for _, t := range times {
		rs = append(rs, content.Record{Time: t})
	}
	return rs
}

// read is records as they are at one look: the wall clock of each is found anew.
func read(at int64, times ...int64) []content.Record {
	rs := records(times...)
	for i := range rs {
		rs[i].Wall = time.Unix(0, rs[i].Time+at)
	}
	return rs
}

// Whatever comes late, goes away or is there twice, each record is new once.
func TestNewRecords(t *testing.T) {
	for _, c := range []struct{ before, now, want []int64 }{
		{nil, nil, nil},
		{nil, []int64{1, 2}, []int64{1, 2}},
		{[]int64{1, 2}, []int64{1, 2}, nil},
		{[]int64{1, 2}, []int64{1, 2, 3}, []int64{3}},
		{[]int64{1, 3}, []int64{1, 2, 3, 4}, []int64{2, 4}},
		{[]int64{1, 2, 3}, []int64{3, 4}, []int64{4}},
		{[]int64{1}, []int64{5, 6}, []int64{5, 6}},
		{[]int64{1}, []int64{1, 1}, []int64{1}},
	} {
		if got := newRecords(read(1, c.before...), read(2, c.now...)); !slices.Equal(got, read(2, c.want...)) {
			t.Errorf("%v, then %v: new are %v, want %v", c.before, c.now, got, c.want)
		}
	}
}

func TestFollowPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		// One packet a second, until the fault ends after 3.5 s with one more.
		look := func(context.Context) (content.Log, bool, error) {
			n := int64(time.Since(start) / time.Second)
			log := content.Log{Chosen: uint64(n)}
			for i := range n {
				log.Records = append(log.Records, content.Record{Time: i + 1})
			}
			ended := time.Since(start) >= 3500*time.Millisecond
			if ended {
				log.Chosen, log.Missed, log.Records = 5, 1, append(log.Records, content.Record{Time: 9})
			}
			return log, !ended, nil
		}
		var got []content.Log
		send := func(l content.Log) error { got = append(got, l); return nil }
		if err := followPackets(t.Context(), false, look, send); err != nil || len(got) != 1 || len(got[0].Records) != 0 {
			t.Errorf("without follow, at once: %v, %v, want the totals alone", got, err)
		}
		got = nil
		if err := followPackets(t.Context(), true, look, send); err != nil {
			t.Fatal(err)
		}
		var all []content.Record
		for _, l := range got {
			all = append(all, l.Records...)
		}
		if last := got[len(got)-1]; !slices.Equal(all, records(1, 2, 3, 9)) || last.Chosen != 5 || last.Missed != 1 || len(got) != 5 {
			t.Errorf("followed: %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := errors.New("gone")
		if err := followPackets(ctx, true, look, func(content.Log) error { return gone }); !errors.Is(err, gone) {
			t.Errorf("a client that is gone: %v", err)
		}
		start = time.Now()
		time.AfterFunc(time.Second, cancel)
		if err := followPackets(ctx, true, look, send); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	})
}

func TestParts(t *testing.T) {
	var parts []int
	log := content.Log{Chosen: 3000, Records: make([]content.Record, 2*packetsAPart+1)}
	if err := sendParts(log, func(l content.Log) error {
		if l.Chosen != 3000 {
			t.Errorf("a part without the totals: %d", l.Chosen)
		}
		parts = append(parts, len(l.Records))
		return nil
	}); err != nil || !slices.Equal(parts, []int{packetsAPart, packetsAPart, 1}) {
		t.Errorf("%v, %v", parts, err)
	}
}
