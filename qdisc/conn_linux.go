package qdisc

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Handle is the handle of every root qdisc of ours, "4e45:" in the words of tc
// ("NE" in ASCII). The kernel gives out 8001: and up by itself and people tend to
// take small numbers, so a root with this handle is one that netemd made.
const Handle uint32 = 0x4e45_0000

const (
	kind = "netem"

	attrKind    = 1 // TCA_KIND
	attrOptions = 2 // TCA_OPTIONS
	attrStats2  = 7 // TCA_STATS2

	tcmsgSize = 20 // struct tcmsg: family, interface, handle, parent, info
)

// Conn is an rtnetlink connection to one network namespace. Each call is one
// request, which cannot be interrupted but waits for nothing except the kernel's
// own locks. It is safe for concurrent use.
type Conn struct {
	netlink   *netlink.Conn
	namespace string
}

// Config says where Dial connects to. The zero value is the namespace of the
// calling thread.
type Config struct {
	// NetNS is an open descriptor of the network namespace, needed only during
	// Dial; entering another namespace needs CAP_SYS_ADMIN. 0 is the calling
	// thread's.
	NetNS int
	// Namespace is its name, for errors.
	Namespace string
}

// Dial opens a connection. Reading needs no privilege; changing needs
// CAP_NET_ADMIN in the namespace.
func Dial(c Config) (*Conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: c.NetNS, Strict: true})
	if err != nil {
		return nil, fmt.Errorf("rtnetlink dial: %w", err)
	}
	return &Conn{netlink: nl, namespace: c.Namespace}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.netlink.Close() }

// Device is a network interface. Index is what the kernel is asked for, Name what
// errors say.
type Device struct {
	Name  string
	Index int
}

// AddRoot gives the device a netem root with our Handle. Another root than the
// kernel's default is never replaced: the error is then fs.ErrExist. Where the
// kernel has no netem it is errors.ErrUnsupported.
func (c *Conn) AddRoot(d Device, n Netem) error {
	return c.create("qdisc add", d, netlink.Excl, n)
}

// ReplaceRoot makes n the netem root of the device, whatever root it had. Packets
// that waited in a root of another kind or handle are lost; a root of ours is
// changed in place, whatever its impairment was.
func (c *Conn) ReplaceRoot(d Device, n Netem) error {
	return c.create("qdisc replace", d, netlink.Replace, n)
}

func (c *Conn) create(op string, d Device, flag netlink.HeaderFlags, n Netem) error {
	var former *Netem
	if flag == netlink.Replace {
		former = &anything
	}
	options, err := n.marshal(former)
	if err != nil {
		return err
	}
	err = c.request(op, d, unix.RTM_NEWQDISC, flag|netlink.Create, Handle, options)
	var refused *OpError
	if errors.As(err, &refused) && errors.Is(refused.Err, syscall.ENOENT) {
		refused.Err = unknownKind{}
	}
	return err
}

// ChangeRoot makes n the whole impairment of a netem root of ours, in place: no
// packet is lost, and those that wait keep the time they were given. from is what
// Root read there (with the delay's distribution, which the kernel does not tell), so
// that what n lacks is ended. A root with another handle is left alone, with an error.
func (c *Conn) ChangeRoot(d Device, from State, n Netem) error {
	options, err := n.marshal(&from.Netem)
	if err != nil {
		return err
	}
	return c.request("qdisc change", d, unix.RTM_NEWQDISC, 0, Handle, options)
}

// DeleteRoot deletes the root of the device if it has our Handle; the device gets
// the kernel's default back. Packets that wait in it are lost.
func (c *Conn) DeleteRoot(d Device) error {
	return c.request("qdisc delete", d, unix.RTM_DELQDISC, 0, Handle, nil)
}

func (c *Conn) request(op string, d Device, typ netlink.HeaderType, flags netlink.HeaderFlags, handle uint32, options []byte) error {
	data := tcmsg(d.Index, handle)
	data = appendAttr(data, attrKind, []byte(kind+"\x00"))
	if options != nil {
		data = appendAttr(data, attrOptions, options)
	}
	_, err := c.netlink.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   data,
	})
	return c.opError(op, d, err)
}

// tcmsg is the header of a request for the root of a device.
func tcmsg(index int, handle uint32) []byte {
	b := make([]byte, 4, 256) // AF_UNSPEC
	b = order.AppendUint32(b, uint32(int32(index)))
	b = order.AppendUint32(b, handle)
	b = order.AppendUint32(b, parentRoot)
	return order.AppendUint32(b, 0)
}
