package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/kpi"
)

// lab is servers that count a call each 100 ms, each of which keeps them busy for works.
type lab struct {
	mu     sync.Mutex
	works  time.Duration
	hits   []time.Time
	log    []string
	refuse string
}

func (l *lab) Set(_ context.Context, service string, text []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, fmt.Sprintf("%s: %s", service, strings.TrimSpace(string(text))))
	if service == l.refuse {
		return errors.New("it is no http-tier")
	}
	return nil
}

func (l *lab) Counters(_ context.Context, service string) (map[string]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if service == "gone" {
		return nil, errors.New("it is down")
	}
	c := map[string]int64{"hits": int64(len(l.hits)), "done": 0, "in_flight": 0}
	for _, at := range l.hits {
		if time.Since(at) < l.works {
			c["in_flight"]++
		} else {
			c["done"]++
		}
	}
	return maps.Clone(c), nil
}

// during has calls reach the lab until stop is called.
func (l *lab) during() (stop func()) {
	end := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for range 10 {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
			l.mu.Lock()
			l.hits = append(l.hits, time.Now())
			l.mu.Unlock()
		}
	})
	return func() { close(end); all.Wait() }
}

const tierPlan = `experiment: x
version: 1
lab: tiers
repeats: 1
seed: 5
load: {target: front}
phases: {fault: 10 calls}
servers: {front: {work: 10ms}}
cases:
  a: {}
  b: {servers: {back: {status: 503}}}
kpis:
  - {must: "server[front.done] == 10 && server[front.hits] == 10 of a"}
  - {must: "server[gone.hits] == 0"}
`

// TestServersSettle: what servers count is read when they have done what the calls asked for, and
// is not known where they do not come to an end.
func TestServersSettle(t *testing.T) {
	for works, want := range map[time.Duration]kpi.Verdict{0: kpi.Passed, 5 * time.Second: kpi.Passed, time.Hour: kpi.Inconclusive} {
		synctest.Test(t, func(t *testing.T) {
			l := &lab{works: works}
			c := &caller{agent: newAgent()}
			r := &Runner{Plan: read(t, tierPlan), Caller: c, Faults: c.agent, Servers: l}
			defer l.during()()
			o, err := r.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all := Judge(r.Plan, o)
			if got := all[0].Judgement; got.Verdict != want {
				t.Errorf("%v of work: %v, want %v: %+v", works, got.Verdict, want, got)
			}
			if works == time.Hour && !strings.Contains(o[0].Unsettled, "30s after the last call servers were still at work: back with 10 requests, front with 10 requests") {
				t.Errorf("its doubt is %q", o[0].Unsettled)
			}
			if all[1].Verdict != kpi.Inconclusive {
				t.Errorf("a server that is down has counted: %+v", all[1].Judgement)
			}
		})
	}
}

// TestServersBack: what a case set is put back at its end, however it ends.
func TestServersBack(t *testing.T) {
	const all = "front: work: 10ms\nfront: \nback: status: 503\nfront: work: 10ms\nback: \nfront: "
	for name, test := range map[string]struct {
		refuse string
		breaks error
		want   string
	}{
		"done":    {want: all},
		"broken":  {breaks: errors.New("the agent has gone"), want: "front: work: 10ms\nfront: "},
		"refused": {refuse: "back", want: "front: work: 10ms\nfront: \nback: status: 503\nback: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &lab{refuse: test.refuse}
			c := &caller{agent: newAgent(), breaks: test.breaks}
			r := &Runner{Plan: read(t, strings.Replace(tierPlan, "10 calls", "30 calls", 1)), Caller: c, Faults: c.agent, Servers: l}
			_, err := r.Run(t.Context())
			if (err == nil) != (name == "done") {
				t.Errorf("%s: %v", name, err)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if got := strings.Join(l.log, "\n"); got != test.want {
				t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
			}
			if name == "refused" && !strings.Contains(err.Error(), "case b: servers.back: it is no http-tier") {
				t.Errorf("%v", err)
			}
		})
	}
}
