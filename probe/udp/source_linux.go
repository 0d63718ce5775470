package udp

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sourceSize holds the kernel's word to which address a packet was sent.
const sourceSize = 64

// keepSource asks for the address that each packet was sent to, so that its answer comes
// from there: in a node with several addresses the route would choose another one, and
// the client's socket would not take it.
func keepSource(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // whichever family it is; without, the route chooses
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	})
}

// source makes what came with a packet what goes with its answer: the address, and not
// the device, which is the route's to choose. Struct in_pktinfo begins with the device
// (include/uapi/linux/in.h), struct in6_pktinfo ends with it (include/uapi/linux/ipv6.h).
func source(control []byte) []byte {
	const header = unix.SizeofCmsghdr
	if len(control) < header {
		return nil
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0])) //nolint:gosec // the kernel wrote it, and it is as long
	switch {
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(control) >= header+unix.SizeofInet4Pktinfo:
		clear(control[header : header+4])
		local, to := control[header+4:header+8], control[header+8:header+12]
		if [4]byte(local) == [4]byte{} { // it came before anybody asked
			copy(local, to)
		}
		return control[:unix.CmsgSpace(unix.SizeofInet4Pktinfo)]
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(control) >= header+unix.SizeofInet6Pktinfo:
		address := control[header : header+16]
		if address[0] != 0xfe || address[1]&0xc0 != 0x80 { // a link-local address is one of its device
			clear(control[header+16 : header+20])
		}
		return control[:unix.CmsgSpace(unix.SizeofInet6Pktinfo)]
	}
	return nil
}
