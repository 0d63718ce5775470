package netem

import (
	"netemd/internal/fault"
	"netemd/qdisc"
)

// tally turns the counters of a qdisc, which run from its making on and do not know
// why a packet was dropped, into those of one fault. A super-packet counts as its
// segments where it passed, but once where it was dropped, so shares are exact only
// without offloads.
type tally struct {
	base qdisc.Stats
	sum  fault.Counters
}

// changed closes the count under the state that was in force until now. A fault
// begins when nothing was.
func (t *tally) changed(from qdisc.State) {
	if from.Netem.IsZero() {
		t.sum = fault.Counters{}
	} else {
		t.sum = t.now(from)
	}
	t.base = from.Stats
}

// now is the count with what happened under s, which is still in force.
func (t *tally) now(s qdisc.State) fault.Counters {
	if s.Stats.Packets < t.base.Packets { // another qdisc than before
		t.base = qdisc.Stats{}
	}
	n, base := s.Netem, t.base
	sent := int64(s.Stats.Packets-base.Packets) + int64(s.Stats.Queued) - int64(base.Queued)
	passed := uint64(max(sent, 0))
	drops := uint64(s.Stats.Drops - base.Drops)
	ahead := min(uint64(s.Stats.Requeues-base.Requeues), passed)

	c := fault.Counters{Seen: passed + drops}
	if n.Loss > 0 {
		c.Lost = drops
	} else {
		c.Overflow = drops
	}
	if n.Reorder > 0 {
		c.Reordered = ahead
	} else {
		ahead = 0
	}
	if n.Delay > 0 {
		c.Delayed = passed - ahead
	}
	return t.sum.Add(c)
}

// missing names the counters that netem cannot give under n. It has one counter for
// drops of both kinds: with a loss they are Lost, which then includes what a full
// queue dropped; only without a delay is there nothing that fills the queue. It
// counts no duplicates (Seen includes them), no flipped bits, and reordered packets
// only where reorder was asked for, not those that jitter lets pass others.
func missing(n qdisc.Netem) []string {
	var names []string
	for _, counter := range []struct {
		name  string
		lacks bool
	}{
		{"overflow", n.Loss > 0 && n.Delay > 0},
		{"duplicated", n.Duplicate > 0},
		{"reordered", n.Jitter > 0},
		{"corrupted", n.Corrupt > 0},
	} {
		if counter.lacks {
			names = append(names, counter.name)
		}
	}
	return names
}
