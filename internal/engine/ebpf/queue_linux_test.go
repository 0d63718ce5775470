package ebpf

import (
	"slices"
	"testing"
	"time"

	"netemd/qdisc"
)

func median(a []arrival) time.Duration {
	d := make([]time.Duration, 0, len(a))
	for _, x := range a {
		d = append(d, x.delay())
	}
	slices.Sort(d)
	if len(d) == 0 {
		return -1
	}
	return d[len(d)/2]
}

func TestDelay(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		f := l.newFlow(t, client4, server4, 0, port)
		for _, d := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond} {
			if err := e.Set(ctx, l.place, qdisc.Netem{Delay: d}, in(time.Minute)); err != nil {
				t.Fatal(err)
			}
			f.send(300, 200, time.Millisecond)
			got := f.drain(100 * time.Millisecond)
			if len(got) != 300 {
				t.Errorf("%d of 300 arrived", len(got))
			}
			m := median(got)
			t.Logf("delay %s: median %s", d, m)
			if m < d || m > d+slower(2*time.Millisecond) {
				t.Errorf("delay %s: median %s", d, m)
			}
			st, err := e.Read(ctx, l.place)
			t.Logf("%+v %v", st, err)
		}
	})
}
