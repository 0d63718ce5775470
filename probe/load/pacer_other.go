//go:build !linux

package load

// pacer has Go's timers where there is no clock_nanosleep with a deadline.
type pacer struct{ timers }

func (pacer) begin() {}
