package probe

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlines: each ends once, never early, and not when it was taken out; whatever the
// order of their ends is.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Deadlines
		ended := map[int]time.Duration{}
		began := time.Now()
		all := make([]*Deadline, 5)
		for i, after := range []time.Duration{50, 20, 80, 20, 10} {
			d := &Deadline{Expire: func() { ended[i] = time.Since(began) }}
			all[i] = d
			l.Add(d, Now()+int64(after*time.Millisecond))
		}
		if !l.Remove(all[3]) || l.Remove(all[3]) {
			t.Error("taken out: want true once")
		}
		time.Sleep(60 * time.Millisecond)
		synctest.Wait()
		for i, want := range map[int]time.Duration{0: 50, 1: 20, 4: 10} {
			if got := ended[i]; got != want*time.Millisecond {
				t.Errorf("deadline %d ended after %v, want %v ms", i, got, int(want))
			}
		}
		if len(ended) != 3 || l.Remove(all[0]) {
			t.Errorf("ended: %v, want 0, 1 and 4", ended)
		}
		l.Expire()
		if len(ended) != 4 || ended[2] != 60*time.Millisecond {
			t.Errorf("ended: %v, want 2 by Expire", ended)
		}
		l.Add(all[1], Now()+int64(time.Hour))
		l.Stop()
		if ended[1] != 60*time.Millisecond {
			t.Errorf("Stop left one: %v", ended)
		}
	})
}
