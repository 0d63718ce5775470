package ebpf

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"netemd/internal/engine/ebpf/model"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

var chains = map[string]qdisc.Netem{
	"4-state":         {LossState: qdisc.LossState{P13: 5, P31: 20, P32: 15, P23: 50, P14: 3}},
	"Gilbert-Elliott": {GilbertElliott: qdisc.GilbertElliott{P: 5, R: 20, LossBad: 90, LossGood: 1}},
	"Gilbert":         {GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10}},
}

// fate is which of n packets the model loses, drawing as the program does.
func fate(n qdisc.Netem, packets int) []bool {
	c, drawn := model.NewChain(n), uint64(0)
	draw := func() uint32 {
		drawn++
		return uint32(splitmix(n.Seed+drawn*goldenGamma) >> 32)
	}
	lost := make([]bool, packets)
	for i := range lost {
		lost[i] = c.Lost(draw)
	}
	return lost
}

func count(of []bool) (n int) {
	for _, b := range of {
		if b {
			n++
		}
	}
	return n
}

// The program goes through the states packet for packet as the model does, whose long
// run is tested against closed forms.
func TestChainOnTraffic(t *testing.T) {
	for name, n := range chains {
		t.Run(name, func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{})
			p := onPort(l.place)
			f := l.newFlow(t, client4, server4, 0, port)
			n.Seed = 11
			sent := fewer(2000)
			want := fate(n, sent)
			got, c := steady(t, e, p, n, func() []arrival {
				f.next = 0
				f.send(sent, 64, 0)
				return f.drain(100 * ms)
			})
			lost := make([]bool, sent)
			for i := range lost {
				lost[i] = true
			}
			for _, a := range got {
				lost[a.number] = false
			}
			if diff := cmp.Diff(want, lost); diff != "" {
				t.Errorf("lost %d packets, the model %d: they differ", count(lost), count(want))
			}
			if c.Seen != uint64(sent) || c.Lost != uint64(count(want)) {
				t.Errorf("%+v, want %d of %d lost", c, count(want), sent)
			}
			st, err := e.Read(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fault.Status{Netem: n.Normalize(), Counters: c}, st); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			// The same once more is a new beginning after a clear.
			again, _ := steady(t, e, p, n, func() []arrival {
				f.next = 0
				f.send(sent/4, 64, 0)
				return f.drain(50 * ms)
			})
			if len(again) != sent/4-count(want[:sent/4]) {
				t.Errorf("the second time %d of %d arrived, want %d", len(again), sent/4, sent/4-count(want[:sent/4]))
			}
		})
	}
}

// The same with far more packets, which are not sent but shown to the program.
func TestChainOnManyPackets(t *testing.T) {
	const packets = 50_000
	for name, n := range chains {
		t.Run(name, func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{Clsact: true})
			p := l.place
			p.Match = target.Match{Include: []target.Flow{{Protocol: 253}}} // for experiments (RFC 3692)
			n.Seed = 5
			sent := fewer(packets)
			want := fate(n, sent)
			packet := make([]byte, 64)
			packet[12], packet[14], packet[14+9] = 0x08, 0x45, 253
			undisturbed(t, func() string {
				set(t, e, p, n)
				defer func() {
					if err := e.Clear(ctx, p); err != nil {
						t.Error(err)
					}
				}()
				prog := e.places[p.Key()].prog.(*filter).prog
				before := counters(t, e, p)
				for i, lost := range want {
					ret, err := prog.Run(&ebpf.RunOptions{Data: packet})
					if err != nil {
						t.Fatal(err)
					}
					if redirected := ret == 7; redirected != lost { // TC_ACT_REDIRECT
						if counters(t, e, p).Opened == before.Opened {
							t.Fatalf("packet %d: returned %d, the model loses it: %t", i, int32(ret), lost)
						}
						break
					}
				}
				c := counters(t, e, p)
				if c.Opened == 0 && (c.Seen != uint64(sent) || c.Lost != uint64(count(want))) {
					t.Errorf("%+v, want %d of %d lost", c, count(want), sent)
				}
				return waited(c)
			})
		})
	}
}

// In the queue it is the model itself.
func TestChainInTheQueue(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	n := qdisc.Netem{Delay: 20 * ms, GilbertElliott: qdisc.GilbertElliott{P: 100, R: 0}}
	got, c := steady(t, e, p, n, func() []arrival {
		f.next = 0
		f.send(50, 64, 0)
		return f.drain(100 * ms)
	})
	// The first packet is judged by the good state.
	if len(got) != 1 || got[0].number != 0 || c.Lost != 49 {
		t.Errorf("%d of 50 arrived; %+v", len(got), c)
	}
}

func TestCustomDistribution(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	n := qdisc.Netem{Delay: 40 * ms, Jitter: 20 * ms, Distribution: qdisc.Custom, Samples: qdisc.SamplesOf([]int16{qdisc.TableScale})}
	got, c := steady(t, e, p, n, func() []arrival {
		f.send(50, 64, ms)
		return f.collect(50)
	})
	if len(got) != 50 || least(got) < 60*ms || quick(got) > 60*ms+slower(2*ms) {
		t.Errorf("%d of 50 arrived, from %s, first decile %s; %+v", len(got), least(got), quick(got), c)
	}
	if st, err := e.Read(ctx, p); err != nil || st.Netem.Samples != n.Samples {
		t.Errorf("read: %s, %v", st.Netem.Samples, err)
	}
}

func TestQueued(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	queued := func() uint64 {
		t.Helper()
		st, err := e.Read(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return st.Queued
	}
	set(t, e, p, qdisc.Netem{Loss: 1})
	if n := queued(); n != 0 {
		t.Errorf("without a queue %d are held", n)
	}
	delay := slower(500 * ms)
	got, _ := steady(t, e, p, qdisc.Netem{Delay: delay}, func() []arrival {
		f.send(20, 64, 0)
		for end := time.Now().Add(delay * 4 / 5); queued() != 20 && time.Now().Before(end); {
			time.Sleep(ms)
		}
		n, opened := queued(), counters(t, e, p).Opened
		if err := e.Clear(ctx, p); err != nil {
			t.Fatal(err)
		}
		if after := queued(); opened == 0 && (n != 20 || after != 20) {
			t.Errorf("%d are held, and %d after clear", n, after)
		}
		return f.collect(20)
	})
	if len(got) != 20 {
		t.Errorf("%d of 20 arrived", len(got))
	}
	until(t, "nothing held", slower(500*ms), func() bool { return queued() == 0 })
}
