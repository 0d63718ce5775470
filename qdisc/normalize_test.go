package qdisc

import (
	"math"
	"testing"
	"time"
)

func TestNormalizeLimit(t *testing.T) {
	for _, c := range []struct {
		n    Netem
		want uint32
	}{
		{Netem{Delay: time.Hour}, DefaultLimit},
		{Netem{Rate: 1}, 10},
		{Netem{Rate: 8000}, 10},   // 64 kbit/s: 6 packets a second
		{Netem{Rate: 125000}, 83}, // 1 Mbit/s
		{Netem{Rate: 125000, Delay: time.Second, Jitter: time.Second}, 248},
		{Netem{Rate: 125e6}, 82563},      // 1 Gbit/s
		{Netem{Rate: 1e9}, DefaultLimit}, // 8 Gbit/s
		{Netem{Rate: OrderRate}, DefaultLimit},
		{Netem{Rate: 125000, Limit: 7}, 7},
	} {
		if got := c.n.Normalize().Limit; got != c.want {
			t.Errorf("%v: limit %d, want %d", c.n, got, c.want)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		r    Rate
		d    time.Duration
		want uint32
	}{
		{125e6, 100 * ms, 12400}, // 1 Gbit/s: 8257 packets, half as many again
		{125e4, 100 * ms, 125},
		{125e3, 0, 10},
		{125e3, -ms, 10},
		{MaxRate, time.Hour, math.MaxUint32},
	} {
		if got := LimitFor(c.r, c.d); got != c.want {
			t.Errorf("LimitFor(%s, %s) = %d, want %d", c.r, c.d, got, c.want)
		}
	}
	for _, c := range []struct {
		r    Rate
		d    time.Duration
		want uint32
	}{
		{37500, 200 * ms, 4}, // 300 kbit/s
		{125e6, 100 * ms, 8256},
		{1, ms, 1},
		{125e3, 0, 1},
		{125e3, -ms, 1},
		{MaxRate, time.Hour, math.MaxUint32},
		{math.MaxUint64, math.MaxInt64, math.MaxUint32},
	} {
		got := LimitForQueue(c.r, c.d)
		if got != c.want {
			t.Errorf("LimitForQueue(%s, %s) = %d, want %d", c.r, c.d, got, c.want)
		}
		if wait := (Netem{Rate: c.r, Limit: got}).QueueTime(); got > 1 && got < math.MaxUint32 && (wait > c.d || wait < c.d-time.Duration(2*packetSize*1e9/float64(c.r))) {
			t.Errorf("limit %d at %s holds packets for %s, want %s", got, c.r, wait, c.d)
		}
	}
	// 1514 bytes with 10 more are 32 cells of 48, each 53 on the wire.
	if got, want := (Netem{Rate: 53 * 32 * 10, PacketOverhead: 10, CellSize: 48, CellOverhead: 5, Limit: 20}).QueueTime(), 2*time.Second; got != want {
		t.Errorf("with cells: %s, want %s", got, want)
	}
}

func TestParseSlot(t *testing.T) {
	for in, want := range map[string]Slot{
		"10ms":             {MinDelay: 10 * ms, MaxDelay: 10 * ms},
		"10ms,20ms":        {MinDelay: 10 * ms, MaxDelay: 20 * ms},
		"normal,10ms,20ms": {Distribution: Normal, Delay: 10 * ms, Jitter: 20 * ms},
		"custom,10ms,20ms": {Distribution: Custom, Delay: 10 * ms, Jitter: 20 * ms},
		"uniform,10ms,5ms": {MinDelay: 5 * ms, MaxDelay: 15 * ms},
	} {
		if got, err := ParseSlot(in); err != nil || got != want {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "10", "10ms,", "10ms,20ms,30ms", "normal", "normal,10ms", "normal,10ms,5ms,1ms", "uniform,5ms,10ms", "gauss,1ms,1ms"} {
		s, err := ParseSlot(in)
		refused(t, in, s, err, "10ms,20ms")
	}
}

func TestParseLossModels(t *testing.T) {
	for in, want := range map[string]LossState{
		"1%":                   {P13: 1, P31: 99, P23: 100},
		"1%,10%":               {P13: 1, P31: 10, P23: 100},
		"1%,10%,5%,50%,0.1%":   {P13: 1, P31: 10, P32: 5, P23: 50, P14: .1},
		"0%,0%,0%,0%,0.00001%": {P14: .00001},
	} {
		got, err := ParseLossState(in)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
		if back, err := ParseLossState(got.String()); err != nil || back != got {
			t.Errorf("%q: %s reads back as %+v, %v", in, got, back, err)
		}
	}
	for _, in := range []string{"", "1", "1%,", "1%,2%,3%,4%,5%,6%", "1%,200%", "1%;10%"} {
		s, err := ParseLossState(in)
		refused(t, in, s, err, "p13, p31")
	}
	for in, want := range map[string]GilbertElliott{
		"1%,10%":          {P: 1, R: 10, LossBad: 100},
		"1%,10%,90%":      {P: 1, R: 10, LossBad: 90},
		"1%,10%,90%,0.1%": {P: 1, R: 10, LossBad: 90, LossGood: .1},
	} {
		got, err := ParseGilbertElliott(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "1%", "1,10", "1%,10%,90%,1%,1%", "1%,10%,101%"} {
		g, err := ParseGilbertElliott(in)
		refused(t, in, g, err, "p and r")
	}
	g, err := ParseGilbertElliott("1%,10%,0%")
	refused(t, "1%,10%,0%", g, err, "above 0%")
}
