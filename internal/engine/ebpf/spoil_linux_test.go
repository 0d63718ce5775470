package ebpf

import (
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf/model"
	"netemd/qdisc"
)

// What a stalled queue throws away is counted as the model counts: each segment of a
// super-packet where it sees those, and whole packets otherwise.
func TestStallCountsSegments(t *testing.T) {
	const mss, count = 1000, 12
	for _, c := range []struct {
		n    qdisc.Netem
		want uint64
	}{
		{qdisc.Netem{Delay: ms, Loss: 1}, count + 1},
		{qdisc.Netem{Delay: ms}, 2},
	} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range [][]byte{superFrame(4, false, 0, mss, count*mss, 0x10), make([]byte, vnetHeader+60)} {
			if _, err := unix.Write(fds[1], f); err != nil {
				t.Fatal(err)
			}
		}
		var out keeper
		q := &queue{out: &out, tap: &tap{fd: fds[0]}, log: slog.New(slog.DiscardHandler)}
		q.model.Store(model.New(c.n.Normalize()))
		l := &loop{queue: q, rest: make([]byte, maxFrame)}
		l.recover(l.last + int64(lateLimit+time.Second))
		if got := q.late.Load(); got != c.want || q.overflow.Load() != 0 || q.frames.Load() != c.want || len(out) != 0 {
			t.Errorf("%v: %d counted of %d, want %d", c.n, got, q.frames.Load(), c.want)
		}
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
	}
}
