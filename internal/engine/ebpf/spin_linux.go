package ebpf

// maxSpin is how long the thread at most runs towards a due time instead of sleeping.
const maxSpin = 100_000 // ns

// spin makes up for wake-ups that come late: the thread has itself woken earlier by what
// they are usually late, and runs for the rest of the time, for at most a fifth of its
// time.
type spin struct {
	// late is how late wake-ups are, in ns; nearly all of them.
	late int64
	// until is the due time towards which it runs, and rested when it may again.
	until, rested int64
}

// wait is how long to sleep at t when something is due in ns: 0 is not at all.
func (s *spin) wait(t, ns int64) int64 {
	switch at := t + ns - s.late; {
	case t < s.until:
		return 0
	case at < s.rested:
		return ns
	case at > t:
		return at - t
	}
	s.until, s.rested = t+ns, t+5*ns
	return 0
}

// woke learns from a wake-up that was late by ns.
func (s *spin) woke(ns int64) {
	if ns = min(ns, maxSpin); ns > s.late {
		s.late += (ns - s.late) / 4
	} else {
		s.late -= (s.late - ns) / 32
	}
}
