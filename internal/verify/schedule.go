package verify

import (
	"time"

	"netemd/qdisc"
)

// schedule says when each packet, a frame of size bytes, is due. Packets are spread
// evenly; at a Rate they come in bunches, so that they wait for each other without
// ever filling the queue, and there are only as many as fit in the time.
func schedule(n qdisc.Netem, o Options, size int) []time.Duration {
	due := make([]time.Duration, 0, o.Packets)
	if n.Rate == 0 {
		for i := range o.Packets {
			due = append(due, time.Duration(float64(i)/float64(o.Rate)*float64(time.Second)))
		}
		return due
	}
	each := float64(onWire(n, size)) / float64(n.Rate) * float64(time.Second)
	// What is delayed stands in the same queue.
	inQueue := float64(n.Delay+n.Jitter) / each
	room := (float64(n.Limit) - inQueue) * 3 / 4
	bunch := int(max(min(room, max(bunchTime/each, 2*busyPackets)), 2))
	pause := max(each*idle, float64(time.Second)/float64(o.Rate))
	for i := 0; len(due) < o.Packets; i++ {
		start := float64(i*bunch) * pause
		if len(due) >= MinPackets && start > float64(o.Duration()) {
			break
		}
		for range min(bunch, o.Packets-len(due)) {
			due = append(due, time.Duration(start))
		}
	}
	return due
}

const (
	// bunchTime is how long a bunch of packets lasts at the rate, in ns.
	bunchTime = float64(100 * time.Millisecond)
	// idle is the time for each packet over what it takes: a fifth of the time the
	// queue is empty.
	idle = 1.25
)
