package policy

import "time"

// buckets of a window of time: what is in it leaves in steps of a tenth.
const buckets = 10

// window counts the last results: Calls of them, or those of a Period.
type window struct {
	// ring has the last results where calls are counted.
	ring []bool
	next int
	// spans have the counts of each tenth of a period, the newest at the number's place.
	span   int64
	number int64
	spans  [buckets]struct{ n, failed int }

	n, failed int
}

func newWindow(calls int, period time.Duration) *window {
	if period > 0 {
		return &window{span: int64(period) / buckets}
	}
	return &window{ring: make([]bool, calls)}
}

// add counts a result.
func (w *window) add(now int64, failed bool) {
	f := 0
	if failed {
		f = 1
	}
	if w.span > 0 {
		w.pass(now)
		s := &w.spans[w.number%buckets]
		s.n++
		s.failed += f
	} else {
		if w.n == len(w.ring) {
			w.n--
			if w.ring[w.next] {
				w.failed--
			}
		}
		w.ring[w.next] = failed
		w.next = (w.next + 1) % len(w.ring)
	}
	w.n++
	w.failed += f
}

// pass lets go what is older than the period: the tenth that now is in, and the nine
// before it, stay.
func (w *window) pass(now int64) {
	number := now / w.span
	for ; w.number < number; w.number++ {
		if number-w.number > buckets { // nothing of it can stay
			w.number = number - buckets - 1
			continue
		}
		s := &w.spans[(w.number+1)%buckets]
		w.n, w.failed = w.n-s.n, w.failed-s.failed
		s.n, s.failed = 0, 0
	}
}

func (w *window) reset() {
	w.n, w.failed, w.next = 0, 0, 0
	w.spans = [buckets]struct{ n, failed int }{}
}
