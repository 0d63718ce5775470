package netem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"netemd/namespaces"
	"netemd/qdisc"
)

var order = binary.NativeEndian

// rtnl is an rtnetlink connection to one namespace, for links, clsact and filters.
// What it reads it takes apart only as far as it must, since foreign qdiscs and
// filters may have attributes that nobody here knows.
type rtnl struct {
	nl        *netlink.Conn
	namespace string
}

func dialRTNL(netns int, namespace string) (*rtnl, error) {
	nl, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: netns, Strict: true})
	if err != nil {
		return nil, fmt.Errorf("rtnetlink dial: %w", err)
	}
	return &rtnl{nl: nl, namespace: namespace}, nil
}

func (c *rtnl) Close() error { return c.nl.Close() }

// change sends one request and waits for the acknowledgement. device is what the
// error says.
func (c *rtnl) change(op, device string, typ netlink.HeaderType, flags netlink.HeaderFlags, header []byte, attrs *netlink.AttributeEncoder) error {
	_, err := c.execute(op, device, typ, netlink.Request|netlink.Acknowledge|flags, header, attrs)
	return err
}

// dump lists. A list that was torn by a change may lack what was there all the time, so
// it is asked for again.
func (c *rtnl) dump(op, device string, typ netlink.HeaderType, header []byte) ([]netlink.Message, error) {
	return namespaces.Whole(func() ([]netlink.Message, error) {
		replies, err := c.execute(op, device, typ, netlink.Request|netlink.Dump, header, nil)
		if err == nil && torn(replies) {
			err = &qdisc.OpError{Op: op, Device: device, Namespace: c.namespace, Err: namespaces.ErrTorn}
		}
		return replies, err
	})
}

// torn reports whether the kernel says so (NLM_F_DUMP_INTR).
func torn(replies []netlink.Message) bool {
	return slices.ContainsFunc(replies, func(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 })
}

func (c *rtnl) execute(op, device string, typ netlink.HeaderType, flags netlink.HeaderFlags, header []byte, attrs *netlink.AttributeEncoder) ([]netlink.Message, error) {
	if attrs != nil {
		b, err := attrs.Encode()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", op, device, err)
		}
		header = append(header, b...)
	}
	replies, err := c.nl.Execute(netlink.Message{Header: netlink.Header{Type: typ, Flags: flags}, Data: header})
	if err == nil {
		return replies, nil
	}
	e := &qdisc.OpError{Op: op, Device: device, Namespace: c.namespace, Err: err}
	if reply, ok := errors.AsType[*netlink.OpError](err); ok {
		e.Err, e.Message = reply.Err, reply.Message
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		e.Err = errno
	}
	if flags&netlink.Create != 0 && errors.Is(e.Err, syscall.ENOENT) {
		e.Err = unknownKind{}
	}
	return nil, e
}

// unknownKind is ENOENT on adding something: the kernel has no module of that kind. It
// is no fs.ErrNotExist, which would say that the device is gone.
type unknownKind struct{}

func (unknownKind) Error() string { return syscall.ENOENT.Error() }

func (unknownKind) Is(target error) bool { return target == errors.ErrUnsupported }

// absent makes success of an error that says that the thing is not there.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
