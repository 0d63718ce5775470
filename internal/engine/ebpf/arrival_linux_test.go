package ebpf

import "testing"

// TestArrival has the program's side write times and the thread's side read frames.
func TestArrival(t *testing.T) {
	var p page
	l := loop{queue: &queue{page: &p}}
	divert := func(at int64) {
		p.arrived[p.diverted.Load()%arrivals].Store(uint64(at))
		p.diverted.Add(1)
	}
	want := func(what string, want int64) {
		t.Helper()
		if got := l.arrival(); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	begin := now()
	l.empty = begin
	divert(begin + 10)
	divert(begin + 30)
	want("the first", begin+10)
	want("the second", begin+30)

	// One was counted and not yet in the TAP when that was found empty: its number is
	// passed over, and where the next should be is a time of long ago.
	divert(begin + 40)
	l.taken, l.empty = p.diverted.Load(), begin+50
	before := now()
	if got := l.arrival(); got < before || got > now() {
		t.Errorf("a frame without a time of its own: %d, want now, %d", got, before)
	}

	// More than there is room for: times never go back, and none is older than the
	// frame before.
	begin = now()
	l.taken, l.empty = p.diverted.Load(), begin
	for i := range int64(arrivals + 44) {
		divert(begin + i)
	}
	last := begin
	for i := range int64(arrivals + 44) {
		got := l.arrival()
		if got < last || got > begin+arrivals+44 || got < begin+i {
			t.Fatalf("frame %d of a burst: %d, after one of %d; it came at %d", i, got-begin, last-begin, i)
		}
		last = got
	}
}
