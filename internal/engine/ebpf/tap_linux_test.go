package ebpf

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/internal/testenv"
)

// The TAP holds so many packets and no more; what it drops is overflow, and what it
// holds comes out in order.
func TestTAPOverflow(t *testing.T) {
	testenv.Root(t)
	l := newLab(t)
	q := &queue{page: &page{}}
	var s *socket
	l.in(t, l.client, func() (err error) {
		if q.tap, err = newTAP(); err != nil {
			return err
		}
		s, err = newSocket(q.tap.index, 0)
		return err
	})
	atEnd(t, q.tap.close)
	atEnd(t, s.close)
	const more = 500
	frame := make([]byte, vnetHeader+60)
	for i := range tapQueue + more {
		frame[vnetHeader+50], frame[vnetHeader+51] = byte(i>>8), byte(i)
		// A socket is told what a redirected packet's sender is not.
		if _, err := s.send([]packet{{frame: frame}}); err != nil && (i < tapQueue || !errors.Is(err, unix.ENOBUFS)) {
			t.Fatal(err)
		}
	}
	if c := q.totals(); c.Overflow != more || c.Seen != more {
		t.Errorf("%+v, want an overflow of %d", c, more)
	}
	b := make([]byte, maxFrame)
	for i := range tapQueue {
		n, err := unix.Read(q.tap.fd, b)
		if err != nil || n != len(frame) || int(b[vnetHeader+50])<<8|int(b[vnetHeader+51]) != i {
			t.Fatalf("packet %d: %d bytes, %x, %v", i, n, b[vnetHeader+50:vnetHeader+52], err)
		}
	}
	if _, err := unix.Read(q.tap.fd, b); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("another one: %v", err)
	}
}
