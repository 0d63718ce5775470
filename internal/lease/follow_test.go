package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/content"
	"netemd/internal/fault"
)

// following is a follower and what it was told.
type following struct {
	parts []content.Log
	err   error
	done  bool
	owner string
	// slow is how long it takes for each part.
	slow time.Duration
}

func (f *following) start(ctx context.Context, m *Manager, id string) {
	go func() {
		f.err = m.FollowPackets(ctx, id, f.owner, func(l content.Log) error {
			time.Sleep(f.slow)
			f.parts = append(f.parts, l)
			return nil
		})
		f.done = true
	}()
}

func (f *following) all() (ts []int64, skipped uint64) {
	for _, p := range f.parts {
		ts, skipped = append(ts, times(p)...), skipped+p.Skipped
	}
	return ts, skipped
}

// Each packet is told once and soon, a silent rule costs no reading, and the end is told.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, e := newChoosingHost(t, nil)
		s := dropOn("80", content.Rule{Kind: content.Every, N: 1})
		s.Direction = fault.Both
		h, err := m.Apply(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		keys := e.ruling()
		e.choose(keys[0], 1)
		var f following
		f.start(t.Context(), m, h.ID)
		synctest.Wait()
		if ts, _ := f.all(); !slices.Equal(ts, []int64{1}) {
			t.Errorf("at once: %v", ts)
		}
		given := func() (n int) {
			e.meddleRules(func() { n = e.reads })
			return n
		}
		reads := given()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := given(); len(f.parts) != 1 || n != reads {
			t.Errorf("a silent rule: %d parts, %d records read", len(f.parts), n-reads)
		}
		e.choose(keys[1], 2)
		e.choose(keys[0], 3)
		time.Sleep(followPause)
		synctest.Wait()
		if ts, _ := f.all(); !slices.Equal(ts, []int64{1, 2, 3}) {
			t.Errorf("told %v", ts)
		}
		e.choose(keys[1], 4)
		if _, err := m.Clear(t.Context(), fault.Selector{ID: h.ID}, "uid 0"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * followEvery)
		synctest.Wait()
		ts, skipped := f.all()
		if !slices.Equal(ts, []int64{1, 2, 3, 4}) || skipped != 0 || !f.done || f.err != nil || f.parts[len(f.parts)-1].Chosen != 4 {
			t.Errorf("to the end %v, skipped %d, done %t: %v", ts, skipped, f.done, f.err)
		}
		if len(m.followers) != 0 {
			t.Errorf("%v follow", m.followers)
		}
		// Of one that has ended, what is kept is told at once.
		var late following
		late.start(t.Context(), m, h.ID)
		synctest.Wait()
		if ts, _ := late.all(); !late.done || late.err != nil || len(ts) != 4 {
			t.Errorf("after the end: %v, %v", ts, late.err)
		}
	})
}

// A reader that is slow is told how many it missed, to the packet.
func TestSlowFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, e := newChoosingHost(t, nil)
		h, err := m.Apply(t.Context(), dropOn("80", content.Rule{Kind: content.Every, N: 1}))
		if err != nil {
			t.Fatal(err)
		}
		key := e.ruling()[0]
		f := following{slow: time.Second}
		f.start(t.Context(), m, h.ID)
		synctest.Wait() // it is at its first part
		const all = content.MaxRecords + 1234
		for i := range all {
			e.choose(key, int64(i))
		}
		time.Sleep(5 * time.Second)
		if _, err := m.Clear(t.Context(), fault.Selector{ID: h.ID}, "uid 0"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		ts, skipped := f.all()
		if len(ts)+int(skipped) != all || skipped != all-content.MaxRecords || !f.done || !slices.IsSorted(ts) {
			t.Errorf("%d told and %d skipped of %d, done %t: %v", len(ts), skipped, all, f.done, f.err)
		}
	})
}

// Followers are bounded by name, and one that goes makes room.
func TestTooManyFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _ := newChoosingHost(t, nil)
		h, err := m.Apply(t.Context(), dropOn("80", dropSYN))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		all := make([]following, MaxFollowers)
		nothing := func(content.Log) error { return nil }
		for i := range all {
			all[i].owner = fmt.Sprint("uid:", i/OwnerShare(MaxFollowers))
			all[i].start(ctx, m, h.ID)
			synctest.Wait()
			if i+1 != OwnerShare(MaxFollowers) {
				continue
			}
			if err := m.FollowPackets(t.Context(), h.ID, "uid:0", nothing); !errors.Is(err, fault.ErrBusy) || !strings.Contains(err.Error(), "at most 4 of one can") {
				t.Errorf("one more of an owner: %v", err)
			}
		}
		err = m.FollowPackets(t.Context(), h.ID, "last", nothing)
		if !errors.Is(err, fault.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprintf("at most %d", MaxFollowers)) {
			t.Errorf("one more: %v", err)
		}
		gone := errors.New("gone")
		cancel(gone)
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(all[0].err, gone) || len(m.followers) != 0 {
			t.Errorf("%v, and %v follow", all[0].err, m.followers)
		}
		if err := m.FollowPackets(t.Context(), h.ID, "", func(content.Log) error { return gone }); !errors.Is(err, gone) {
			t.Errorf("a reader that fails: %v", err)
		}
	})
}

// What ended faults did is freed by itself.
func TestEndedAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _ := newChoosingHost(t, nil)
		h, err := m.Apply(t.Context(), dropOn("80", dropSYN))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: h.ID}, "uid 0"); err != nil {
			t.Fatal(err)
		}
		kept := func() int {
			m.mu.Lock()
			defer m.mu.Unlock()
			return len(m.ended)
		}
		if n := kept(); n != 1 {
			t.Errorf("%d are kept", n)
		}
		time.Sleep(endedTime)
		synctest.Wait()
		if n := kept(); n != 0 {
			t.Errorf("%d are kept a minute later, though nobody asked", n)
		}
	})
}
