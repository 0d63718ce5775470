package agent

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"netemd/internal/cgroup"
	"netemd/internal/target"
)

// narrowGroup is how deep a group stands that narrows a flow: "/system.slice" and
// "/user.slice" have nearly all processes of a host.
const narrowGroup = 2

// narrowed reports whether f is of the processes of a group that are not most of the host's.
func narrowed(f target.Flow) bool {
	return f.SourceCgroup.Level >= narrowGroup || f.DestinationCgroup.Level >= narrowGroup
}

// without are the packets of m that can be c's by the group of its socket: flows of groups
// that it is not in are left out, and of the others the groups. What cannot be told stays.
// ok is false when nothing is left.
func without(m target.Match, c Connection) (rest target.Match, ok bool) {
	if len(m.Cgroups()) == 0 {
		return m, true
	}
	ids, known := groupsOf(c)
	rest = m
	rest.Include = nil
	for _, f := range m.Include {
		member := func(g target.Cgroup) bool {
			return g.Any() || !known || slices.ContainsFunc(ids, func(id uint64) bool {
				in, err := cgroup.Contains(g, id)
				return in || err != nil
			})
		}
		if member(f.SourceCgroup) && member(f.DestinationCgroup) {
			f.SourceCgroup, f.DestinationCgroup = target.Cgroup{}, target.Cgroup{}
			rest.Include = append(rest.Include, f)
		}
	}
	return rest, len(rest.Include) > 0
}

// groupsOf are the groups of the sockets of c, of which the other end may be here, too. known
// is false when this end's is not found.
func groupsOf(c Connection) (ids []uint64, known bool) {
	own, err := groupOfSocket(c.Local, c.Remote)
	if err != nil {
		return nil, false
	}
	ids = []uint64{own}
	if other, err := groupOfSocket(c.Remote, c.Local); err == nil {
		ids = append(ids, other)
	}
	return ids, true
}

// inetDiagCgroup is INET_DIAG_CGROUP_ID (linux/inet_diag.h), there from Linux 5.9 on, and
// diagMessage the length of struct inet_diag_msg before the attributes.
const (
	inetDiagCgroup = 21
	diagMessage    = 72
)

// diagRequest is struct inet_diag_req_v2.
type diagRequest struct{ local, remote netip.AddrPort }

func (diagRequest) Len() int { return 56 }

func (r diagRequest) Serialize() []byte {
	b := make([]byte, 56)
	b[0], b[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if r.local.Addr().Is4() {
		b[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(b[4:], ^uint32(0)) // in any state
	binary.BigEndian.PutUint16(b[8:], r.local.Port())
	binary.BigEndian.PutUint16(b[10:], r.remote.Port())
	copy(b[12:], r.local.Addr().AsSlice())
	copy(b[28:], r.remote.Addr().AsSlice())
	for i := range 8 { // no cookie is asked for (INET_DIAG_NOCOOKIE)
		b[48+i] = 0xff
	}
	return b
}

// groupOfSocket asks for the group of a TCP socket of the own namespace. The error is
// fs.ErrNotExist when there is no such socket.
func groupOfSocket(local, remote netip.AddrPort) (uint64, error) {
	const byFamily = 20 // SOCK_DIAG_BY_FAMILY (linux/sock_diag.h)
	req := nl.NewNetlinkRequest(byFamily, 0)
	req.AddData(diagRequest{local, remote})
	answers, err := req.Execute(unix.NETLINK_INET_DIAG, 0) // in the namespace of the calling thread
	if err != nil {
		return 0, fmt.Errorf("look for the socket %s -> %s: %w", local, remote, err)
	}
	for _, a := range answers {
		if len(a) < diagMessage {
			continue
		}
		attrs, err := nl.ParseRouteAttr(a[diagMessage:])
		if err != nil {
			return 0, err
		}
		for _, at := range attrs {
			if at.Attr.Type == inetDiagCgroup && len(at.Value) >= 8 {
				return binary.NativeEndian.Uint64(at.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("the group of the socket %s -> %s: %w", local, remote, fs.ErrNotExist)
}
