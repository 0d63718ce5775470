package ebpf

import (
	"testing"

	"netemd/internal/engine/ebpf/model"
	"netemd/qdisc"
)

// A packet that waits for a slot only is delayed when it leaves, and is counted once; what
// an open slot lets pass is not.
func TestSlotsAloneDelay(t *testing.T) {
	var out keeper
	q := &queue{out: &out}
	l := &loop{queue: q, used: model.New(qdisc.Netem{Slot: qdisc.Slot{MinDelay: ms}}.Normalize())}
	come := func(at int64) {
		l.frame(at, make([]byte, vnetHeader+60))
		l.flush(at)
	}
	for i := range int64(5) {
		come(i)
	}
	if got := q.delayed.Load(); len(out) != 0 || got != 0 {
		t.Errorf("before the slot %d left, %d delayed", len(out), got)
	}
	l.flush(int64(ms))
	if got := q.delayed.Load(); len(out) != 5 || got != 5 {
		t.Errorf("with the slot %d left, %d delayed", len(out), got)
	}
	// With a delay of its own each is counted when it comes, and not again.
	l.used = model.New(qdisc.Netem{Delay: ms, Slot: qdisc.Slot{MinDelay: ms}}.Normalize())
	l.next = 0
	come(int64(2 * ms))
	if got := q.delayed.Load(); got != 6 {
		t.Errorf("%d delayed, want 6", got)
	}
	l.flush(int64(10 * ms))
	l.flush(int64(20 * ms))
	if got := q.delayed.Load(); len(out) != 6 || got != 6 {
		t.Errorf("%d left, %d delayed", len(out), got)
	}
}
