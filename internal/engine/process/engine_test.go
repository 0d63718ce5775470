package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/fault"
	"netemd/internal/lab/service"
)

// keeper is a fake one: it is back at its time, and ready a while after it.
type keeper struct {
	news   chan service.News
	ready  time.Duration
	refuse string
	fail   string

	mu     sync.Mutex
	timer  *time.Timer
	number int
	until  int64
	closed bool
}

func (k *keeper) tell(what string, number int, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.news <- service.News{Number: number, What: what, PID: 7, MonotonicNS: time.Now().UnixNano(), UnixNS: time.Now().UnixNano(), Error: text}
	}
}

func (k *keeper) Call(c service.Call) error {
	k.mu.Lock()
	k.until, k.number = c.UntilNS, c.Number
	k.mu.Unlock()
	back := func(number int) {
		k.tell(service.Up, number, "")
		time.AfterFunc(k.ready, func() {
			if k.fail != "" {
				k.tell(service.Failed, number, k.fail)
				return
			}
			k.tell(service.Ready, number, "")
		})
	}
	switch {
	case c.Do == service.Until:
	case c.Do == service.Back:
		if k.timer != nil {
			k.timer.Stop()
		}
		back(c.Number)
	case k.refuse != "":
		k.tell(service.Refused, c.Number, k.refuse)
	default:
		k.tell(service.Down, c.Number, "")
		if c.DownNS > 0 {
			k.timer = time.AfterFunc(time.Duration(c.DownNS), func() { back(c.Number) })
		}
	}
	return nil
}

func (k *keeper) News() <-chan service.News { return k.news }

func (k *keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.closed = true
		close(k.news)
	}
	return nil
}

// world has keepers, and what was told.
type world struct {
	*Engine
	keepers map[string]*keeper
	mu      sync.Mutex
	kinds   []string
	strikes map[int]fault.StrikeRecord
	run     fault.OutageRun
}

func newWorld(names ...string) *world {
	w := &world{keepers: map[string]*keeper{}, strikes: map[int]fault.StrikeRecord{}}
	for _, n := range names {
		w.keepers[n] = &keeper{news: make(chan service.News, 100), ready: 50 * time.Millisecond}
	}
	w.Engine = New(Config{Dial: func(name string) (Link, error) {
		k := w.keepers[name]
		if k == nil {
			return nil, fs.ErrNotExist
		}
		return k, nil
	}, Changed: func(string) {}})
	return w
}

func (w *world) told(kind string, r fault.OutageRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := kind
	for _, s := range r.Strikes {
		w.strikes[s.Number] = s
		text = fmt.Sprintf("%s %d %s", kind, s.Number, s.Service)
	}
	w.kinds, w.run = append(w.kinds, text), r
}

func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.kinds, ", ")
}

func outage(o fault.Outage) fault.Fault {
	now := time.Now()
	return fault.Fault{ID: "f1", Spec: fault.Spec{Outage: &o}, Applied: now, Expires: now.Add(time.Hour)}
}

func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("l/a")
		f := outage(fault.Outage{Action: fault.Kill, Services: []string{"l/a"}, Down: 600 * time.Millisecond})
		if err := w.Set(t.Context(), f, false, w.told); err != nil {
			t.Fatal(err)
		}
		if got := w.said(); got != "down 1 l/a" || !slices.Equal(w.run.Down, []string{"l/a"}) || w.run.Of != 1 {
			t.Errorf("%s, %+v", got, w.run)
		}
		time.Sleep(time.Second)
		if got := w.said(); got != "down 1 l/a, up 1 l/a, ready 1 l/a, over" {
			t.Error(got)
		}
		s := w.strikes[1]
		if s.Took() != 650*time.Millisecond || s.PID != 7 || !w.run.Over || len(w.run.Down) > 0 || w.run.Done != 1 {
			t.Errorf("%+v, %+v", s, w.run)
		}
		if err := errors.Join(w.Read(t.Context(), f), w.Clear(t.Context(), "f1"), w.Clear(t.Context(), "f1")); err != nil {
			t.Error(err)
		}
		if err := w.Read(t.Context(), f); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("cleared: %v", err)
		}
	})
}

// What happens is the timetable, at its times.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"l/a", "l/b", "l/c"}
		w := newWorld(names...)
		o := fault.Outage{Action: fault.Kill, Services: names, Down: 600 * time.Millisecond, Every: 1500 * time.Millisecond, Jitter: 20, Count: 8, Seed: 7}
		f := outage(o)
		if err := w.Set(t.Context(), f, false, w.told); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		for s := range o.Strikes() {
			got := w.strikes[s.Number]
			if got.Service != s.Service || got.Down.Time.Sub(f.Applied) != s.At || got.Took() != 650*time.Millisecond {
				t.Errorf("strike %d: %+v, want %s at %v", s.Number, got, s.Service, s.At)
			}
		}
		if w.run.Done != 8 || w.run.Skipped+w.run.Failed > 0 || !w.run.Over {
			t.Errorf("%+v", w.run)
		}
		_ = w.Clear(t.Context(), "f1")
	})
}

// One that takes long to be ready leaves no room for the next.
func TestNeverTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("l/a", "l/b")
		for _, k := range w.keepers {
			k.ready = 2500 * time.Millisecond
		}
		o := fault.Outage{Action: fault.Stop, Services: []string{"l/a", "l/b"}, Down: 100 * time.Millisecond, Every: time.Second, Count: 5}
		if err := w.Set(t.Context(), outage(o), false, w.told); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		// Down from 0 to 2.6 s, and from 3 s on.
		if w.run.Done != 2 || w.run.Skipped != 3 || !strings.Contains(w.strikes[2].Skipped, "not back yet") || w.strikes[4].Skipped != "" {
			t.Errorf("%s\n%+v\n%+v", w.said(), w.run, w.strikes)
		}
		_ = w.Clear(t.Context(), "f1")
	})
}

func TestClearBringsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("l/a")
		f := outage(fault.Outage{Action: fault.Kill, Services: []string{"l/a"}})
		if err := w.Set(t.Context(), f, false, w.told); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := w.said(); got != "down 1 l/a" {
			t.Error(got)
		}
		// The deadline moves with the fault's.
		before := w.keepers["l/a"].until
		f.Expires = f.Expires.Add(time.Hour)
		if err := w.Set(t.Context(), f, false, w.told); err != nil || w.keepers["l/a"].until <= before {
			t.Errorf("renewed: %v, %d then %d", err, before, w.keepers["l/a"].until)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := w.Clear(ctx, "f1"); err == nil || !strings.Contains(err.Error(), "l/a: not back yet") {
			t.Errorf("cleared in 10 ms: %v", err)
		}
		if err := w.Clear(t.Context(), "f1"); err != nil {
			t.Error(err)
		}
		if s := w.strikes[1]; s.Ready.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

func TestWhatGoesWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := func(name string) fault.Fault {
			return outage(fault.Outage{Action: fault.Kill, Services: []string{name}, Down: time.Second})
		}
		w := newWorld("l/a")
		if err := w.Set(t.Context(), once("l/b"), false, w.told); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "l/b") {
			t.Errorf("not there: %v", err)
		}
		w.keepers["l/a"].refuse = "it does not run"
		if err := w.Set(t.Context(), once("l/a"), false, w.told); err == nil || !strings.Contains(err.Error(), "l/a: it does not run") {
			t.Errorf("refused: %v", err)
		}
		if w.course("f1") != nil {
			t.Error("it stands")
		}
		w = newWorld("l/a")
		w.keepers["l/a"].fail = "not ready after 30s"
		f := once("l/a")
		if err := w.Set(t.Context(), f, false, w.told); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := w.Read(t.Context(), f); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "l/a: not ready after 30s") || w.run.Failed != 1 {
			t.Errorf("not back: %v, %+v", err, w.run)
		}
		_ = w.Clear(t.Context(), "f1")
		w = newWorld("l/a")
		if err := w.Set(t.Context(), f, false, w.told); err != nil {
			t.Fatal(err)
		}
		_ = w.keepers["l/a"].Close() // the keeper was killed
		synctest.Wait()
		if err := w.Read(t.Context(), f); err == nil || !strings.Contains(err.Error(), "it has ended") || w.strikes[1].Error == "" {
			t.Errorf("killed: %v, %+v", err, w.strikes[1])
		}
		if err := w.Clear(t.Context(), "f1"); err != nil {
			t.Error(err)
		}
	})
}

// What another life did is not done again, and goes on where the timetable is.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("l/a")
		f := outage(fault.Outage{Action: fault.Restart, Services: []string{"l/a"}, Every: time.Second, Count: 4})
		f.Applied = f.Applied.Add(-1500 * time.Millisecond)
		w.keepers["l/a"].ready = 0
		if err := w.Set(t.Context(), f, true, w.told); err != nil {
			t.Fatal(err)
		}
		if got := w.said(); got != "" {
			t.Errorf("at once: %s", got)
		}
		time.Sleep(600 * time.Millisecond)
		if got := w.said(); !strings.HasPrefix(got, "down 3 l/a") {
			t.Errorf("then: %s", got)
		}
		_ = w.Clear(t.Context(), "f1")
	})
}
