package model

import (
	"time"

	"netemd/qdisc"
)

// rate is how long packets take to leave (packet_time_ns).
type rate struct {
	// bytes are per second, 0 is no limit.
	bytes                        uint64
	overhead, cell, cellOverhead int64
}

func rateOf(n qdisc.Netem) rate {
	return rate{uint64(n.Rate), int64(n.PacketOverhead), int64(n.CellSize), int64(n.CellOverhead)}
}

// time is in ns, for a frame of size bytes with its link-layer header.
func (r rate) time(size int) int64 {
	length := max(0, int64(size)+r.overhead)
	if r.cell != 0 {
		length = (length + r.cell - 1) / r.cell * (r.cell + r.cellOverhead)
	}
	return int64(uint64(length) * uint64(time.Second) / r.bytes)
}
