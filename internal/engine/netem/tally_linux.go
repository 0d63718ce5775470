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
	if s.Stats.Netem != nil {
		return t.sum.Add(exact(passed, drops, s.Stats.Netem, base.Netem))
	}
	ahead := min(uint64(s.Stats.Requeues-base.Requeues), passed)

	if n.ECN { // marked packets are among the drops, and passed all the same
		drops = 0
	}
	c := fault.Counters{Seen: passed + drops}
	if loses(n) {
		c.Lost = drops
	} else {
		c.Overflow = drops
	}
	if n.Reorder > 0 {
		c.Reordered = ahead
	} else {
		ahead = 0
	}
	if holds(n) {
		c.Delayed = passed - ahead
	}
	return t.sum.Add(c)
}

// exact is the count by netem's own counters.
func exact(passed, drops uint64, now, base *qdisc.NetemStats) fault.Counters {
	if base == nil {
		base = &qdisc.NetemStats{}
	}
	c := fault.Counters{
		Lost: now.Lost - base.Lost, Delayed: now.Delayed - base.Delayed, Duplicated: now.Duplicated - base.Duplicated,
		Reordered: now.Reordered - base.Reordered, Corrupted: now.Corrupted - base.Corrupted,
	}
	drops -= min(drops, now.Marked-base.Marked)
	c.Overflow = drops - min(drops, c.Lost)
	c.Seen = passed + drops - min(passed+drops, c.Duplicated)
	return c
}

// loses reports whether n drops packets.
func loses(n qdisc.Netem) bool {
	return n.Loss > 0 || n.LossState != qdisc.LossState{} || n.GilbertElliott != qdisc.GilbertElliott{}
}

// holds reports whether packets wait under n, so that the queue may fill.
func holds(n qdisc.Netem) bool { return n.Delay > 0 || n.Rate > 0 || n.Slot != qdisc.Slot{} }

// missing names the counters that a netem without its own cannot give under n. It has
// one counter for drops of both kinds: with a loss they are Lost, which then includes
// what a full queue dropped; only where packets do not wait is there nothing that
// fills the queue. With ECN it counts there what it marked, too, so nothing can be
// said. It counts no duplicates (Seen includes them), no flipped bits, and reordered
// packets only where reorder was asked for, not those that jitter lets pass others.
func missing(n qdisc.Netem) []string {
	var names []string
	for _, counter := range []struct {
		name  string
		lacks bool
	}{
		{"lost", n.ECN},
		{"overflow", n.ECN || loses(n) && holds(n)},
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
