package ebpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
)

// vnetHeader is the size of struct virtio_net_hdr (linux/virtio_net.h), which
// stands before each frame on a TAP and on a packet socket: where the checksum is
// still to be put, and how a super-packet is to be cut.
const vnetHeader = 10

// Fields of struct virtio_net_hdr.
const (
	vnetFlags      = 0
	vnetGSOType    = 1
	vnetCsumStart  = 6
	vnetCsumOffset = 8

	vnetNeedsCsum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
)

// tapPattern lets the kernel number the TAPs of a namespace.
const tapPattern = "netemq%d"

// tapQueue is how many packets the TAP holds until they are read. A TAP does not
// hold its sender back: what comes on top is dropped, and counted as overflow. That is
// 20 MB of frames. Super-packets could be 0.7 GB, but a program passes everything when
// they have not been read for 50 ms (staleAfter).
const tapQueue = 10000

// tap is a device whose other side is a descriptor of ours.
type tap struct {
	fd       int
	index    int
	counters *deviceCounters
}

// newTAP makes a TAP in the calling thread's namespace. It goes with its descriptor.
func newTAP() (*tap, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("open /dev/net/tun (module tun): %w (%w)", errors.ErrUnsupported, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	t := &tap{fd: fd}
	if err := t.setUp(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tap) setUp() error {
	ifr, err := unix.NewIfreq(tapPattern)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(t.fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("make a TAP: %w", err)
	}
	failpoint.At("ebpf.tap.made")
	// Super-packets come uncut, with their checksum open: see super.
	if err := unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, tunCsum|tunTSO4|tunTSO6|tunTSOECN); err != nil {
		return fmt.Errorf("set offloads of a TAP: %w", err)
	}
	name := ifr.Name()
	if t.counters, err = newDeviceCounters(); err != nil {
		return err
	}
	links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer links.Close()
	link, err := links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	t.index = link.Attrs().Index
	if err := links.LinkSetTxQLen(link, tapQueue); err != nil {
		return fmt.Errorf("set queue length of %s: %w", name, err)
	}
	// The stack shall send nothing of its own there.
	err = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disable IPv6 on %s: %w", name, err)
	}
	if err := links.LinkSetARPOff(link); err != nil {
		return fmt.Errorf("set %s noarp: %w", name, err)
	}
	if err := links.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	// Whatever the host's default qdisc does, such as fq's pacing, is not asked for
	// here; without the right to change it, it stays.
	_ = links.QdiscReplace(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: t.index, Parent: netlink.HANDLE_ROOT},
		QdiscType:  "noqueue",
	})
	failpoint.At("ebpf.tap.up")
	return nil
}

// Features of TUNSETOFFLOAD (linux/if_tun.h).
const (
	tunCsum   = 0x01
	tunTSO4   = 0x02
	tunTSO6   = 0x04
	tunTSOECN = 0x08
)

// errTAP says that somebody did something to a TAP by which it takes no packets.
var errTAP = errors.New("netemd's own device of the queue")

// takes is errTAP unless the TAP is up, in the namespace where it was made. Another name
// does no harm: packets are sent to its index.
func (t *tap) takes() error {
	ifr, err := unix.NewIfreq("-")
	if err != nil {
		return err
	}
	ifr.SetUint32(uint32(t.index))
	// The socket is of that namespace.
	if err := unix.IoctlIfreq(t.counters.fd, unix.SIOCGIFNAME, ifr); err != nil {
		return fmt.Errorf("%w, index %d: %w", errTAP, t.index, err)
	}
	if ifr, err = unix.NewIfreq(ifr.Name()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(t.counters.fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return fmt.Errorf("%w, %s: %w", errTAP, ifr.Name(), err)
	}
	if ifr.Uint16()&unix.IFF_UP == 0 {
		return fmt.Errorf("%w, %s, is down", errTAP, ifr.Name())
	}
	return nil
}

// dropped counts the packets that found the TAP full.
func (t *tap) dropped() (uint64, error) {
	n, err := t.counters.txDropped(t.index)
	if err != nil {
		return 0, fmt.Errorf("counters of a TAP: %w", err)
	}
	return n, nil
}

func (t *tap) close() error {
	if t.counters != nil {
		_ = t.counters.close()
	}
	return unix.Close(t.fd)
}
