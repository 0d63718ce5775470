package qdisc

// TableScale is what one jitter is in the samples of a Table (NETEM_DIST_SCALE in
// include/uapi/linux/pkt_sched.h).
const TableScale = tableScale

// Table returns the samples that a delay of this shape is drawn from, in units of
// jitter/TableScale, or nil for Uniform and the empty one, which need none. The
// caller must not change it.
func (d Distribution) Table() []int16 {
	if table := tables[d]; table != nil && d != Uniform {
		return table()
	}
	return nil
}
