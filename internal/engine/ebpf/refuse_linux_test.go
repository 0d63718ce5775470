package ebpf

import (
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf/model"
	"netemd/qdisc"
)

// wall is an output that refuses everything.
type wall struct{ err error }

func (w wall) send([]packet) (int, error) { return 0, w.err }
func (wall) fd() int                      { return -1 }
func (wall) gone() bool                   { return false }

// What a device refuses is no overflow, unless its own queue is full; what comes too late
// is neither.
func TestWhyNotSent(t *testing.T) {
	for _, c := range []struct {
		err error
		at  int64
		of  func(*queue) uint64
	}{
		{unix.EMSGSIZE, 0, func(q *queue) uint64 { return q.refused.Load() }},
		{unix.ENETDOWN, 0, func(q *queue) uint64 { return q.refused.Load() }},
		{unix.EHOSTUNREACH, 0, func(q *queue) uint64 { return q.refused.Load() }},
		{unix.ENOBUFS, 0, func(q *queue) uint64 { return q.overflow.Load() }},
		{nil, int64(lateLimit) + 1, func(q *queue) uint64 { return q.late.Load() }},
	} {
		q := &queue{out: wall{c.err}, log: slog.New(slog.DiscardHandler)}
		m := model.New(qdisc.Netem{Delay: ms}.Normalize())
		q.model.Store(m)
		l := &loop{queue: q, used: m}
		for range 40 {
			l.frame(0, make([]byte, vnetHeader+60))
		}
		l.flush(int64(ms) + c.at)
		all := q.overflow.Load() + q.late.Load() + q.refused.Load()
		if got := c.of(q); got != 40 || all != 40 || l.packets != 0 {
			t.Errorf("%v, %d ns late: %d of the 40 counted right, %d in all", c.err, c.at, got, all)
		}
	}
}
