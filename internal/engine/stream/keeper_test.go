package stream

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
)

// away is for eventually: nil once a Toxiproxy has nothing of the tag.
func (f *foreign) away(tag string) error {
	all, err := f.client.Proxies()
	if err != nil {
		return err
	}
	for name, p := range all {
		if len(p.ActiveToxics) > 0 || !p.Enabled || len(name) > len(tag) && name[:len(tag)] == tag {
			return fmt.Errorf("proxy %+v", p)
		}
	}
	return nil
}

// What is on the Toxiproxy of somebody else ends with the agent, and at the deadline of one
// that was stopped.
func TestKeeper(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Keeper){
		"the agent was killed": func(k *Keeper) { _ = k.process.Stdin.Close() },
		"its time is over":     func(*Keeper) {},
		"the keeper was killed before it": func(k *Keeper) {
			_ = k.process.Kill()
			again := target.Toxiproxy{API: "127.0.0.1:9", Name: "x"}
			eventually(t, 10*time.Second, func() error { // until the pipe is known to be broken
				old := k.process
				if err := k.Watch(t.Context(), again, time.Now().Add(time.Minute), false); err != nil {
					return err
				}
				if k.process == old {
					return fmt.Errorf("no new keeper")
				}
				return k.Watch(t.Context(), again, time.Time{}, false)
			})
			_ = k.process.Stdin.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startForeign(t)
			at := upstream(t, echo)
			f.proxy(t, "redis", at)
			f.proxy(t, "pg", at)
			r, k := NewRemote(t.TempDir(), nil)
			defer func() { _ = k.Close() }()
			deadline := time.Minute
			if name == "its time is over" {
				deadline = 3 * time.Second
			}
			until := time.Now().Add(deadline)
			for p, toxics := range map[target.Toxiproxy][]fault.Toxic{
				{API: f.api, Name: "redis"}:                        {latency},
				{API: f.api, Name: "pg"}:                           {{Kind: fault.Down}},
				{API: f.api, Listen: freeAddress(t), Upstream: at}: {latency},
			} {
				if err := r.Set(t.Context(), p, toxics, until); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.away(r.Tag); err == nil {
				t.Fatal("nothing is there to take away")
			}
			end(k)
			eventually(t, 20*time.Second, func() error { return f.away(r.Tag) })
			if deadline < time.Minute && time.Now().Before(until) {
				t.Error("it ended before its time")
			}
		})
	}
}

// Another life of the same agent, and another agent, are told apart; both lives bear one tag.
func TestMarks(t *testing.T) {
	p := target.Toxiproxy{API: "127.0.0.1:8474", Name: "redis"}
	a, _ := NewRemote("/run/a", nil)
	next, _ := NewRemote("/run/a", nil)
	b, _ := NewRemote("/run/b", nil)
	if a.Tag != next.Tag || a.Mark(p) == next.Mark(p) || a.Tag == b.Tag {
		t.Errorf("%s, %s, %s", a.Mark(p), next.Mark(p), b.Mark(p))
	}
	w := wireProxy{Toxics: []wireToxic{{Name: a.Mark(p) + "-x"}, {Name: next.Mark(p) + "-x"}, {Name: b.Mark(p) + "-x"}, {Name: "x"}}}
	if d := cmp.Diff([]int{1, 2}, []int{len(ours(w, a.Mark(p))), len(ours(w, a.Tag))}); d != "" {
		t.Error(d)
	}
}
