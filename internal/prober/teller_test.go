package prober

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"netemd/probe"
)

// TestTeller: who measures does not wait for who is told, until too much waits, and for
// ever in no case.
func TestTeller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			told    []int
			reports []int
			hold    = make(chan struct{})
			gone    error
		)
		x := newTeller(func(s []probe.Sample) {
			<-hold
			for _, s := range s {
				told = append(told, s.Seq)
			}
		}, func(p probe.Progress) { reports = append(reports, p.Done) }, func(err error) { gone = err })
		x.limits.untold, x.limits.deaf = 5, 30*time.Second
		go x.run()
		began, seq := time.Now(), 0
		give := func(n int) {
			s := make([]probe.Sample, n)
			for i := range s {
				s[i].Seq = seq
				seq++
			}
			x.give(s, &probe.Progress{Done: seq})
		}
		give(3)
		x.room()
		synctest.Wait() // the sink has them
		give(2)
		x.room()
		if d := time.Since(began); d != 0 {
			t.Errorf("it waited %v with 5 untold", d)
		}
		give(1)
		time.AfterFunc(20*time.Second, func() { hold <- struct{}{} })
		x.room() // until the first 3 are told
		if d := time.Since(began); d != 20*time.Second || gone != nil {
			t.Errorf("it waited %v (%v), want 20s", d, gone)
		}
		give(10)
		x.room()
		if d := time.Since(began); d != 50*time.Second || !errors.Is(gone, ErrDeaf) {
			t.Errorf("after %v: %v, want ErrDeaf after 30s more", d, gone)
		}
		x.room()
		give(10)
		x.room()
		if d := time.Since(began); d != 50*time.Second {
			t.Errorf("who is deaf was waited for once more: %v", d)
		}
		if err := x.close(time.Minute); !errors.Is(err, ErrTelling) {
			t.Errorf("error %v, want ErrTelling", err)
		}
		hold <- struct{}{} // it comes back
		if err := x.close(time.Minute); err != nil {
			t.Errorf("error %v", err)
		}
		if len(told) != 6 || told[5] != 5 || len(reports) == 0 || reports[len(reports)-1] != seq {
			t.Errorf("told of %v and %v, want samples 0..5 and the last progress", told, reports)
		}
	})
}

// TestTellerTellsAll: nothing is lost at the end.
func TestTellerTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		x := newTeller(func(s []probe.Sample) { time.Sleep(time.Second); n += len(s) }, nil, func(error) { t.Error("gone") })
		go x.run()
		for range 100 {
			x.give(make([]probe.Sample, 10), nil)
			time.Sleep(10 * time.Millisecond)
		}
		if err := x.close(time.Minute); err != nil || n != 1000 {
			t.Errorf("%d told, %v; want 1000", n, err)
		}
	})
}
