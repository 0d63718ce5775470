package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"netemd/internal/access"
	"netemd/internal/audit"
)

// peerInfo is who calls, as the kernel knows it from the time of its connect, or by its
// certificate.
type peerInfo struct {
	credentials.CommonAuthInfo
	// uid, gid and groups, the supplementary ones, are of a peer on the unix socket. pid is
	// 0 where the peer is in a pid namespace that is not below the agent's.
	uid, gid uint32
	pid      int32
	groups   []uint32
	// commonName and uris are what the certificate of a TLS peer says that it is, at least
	// one of them; none on the unix socket. address is where it came from.
	commonName string
	uris       []string
	address    string
	// owner says who that is: "uid 0 (root)", "certificate CN ci".
	owner string
	// session is sessionOf the process on the unix socket, read once for a connection: it
	// takes a look at each process above. nil is none.
	session func() string
}

// AuthType names the credentials in gRPC's terms.
func (p peerInfo) AuthType() string {
	if p.byTLS() {
		return "tls"
	}
	return "unix-peer"
}

func (p peerInfo) byTLS() bool { return p.commonName != "" || len(p.uris) > 0 }

func (p peerInfo) root() bool { return !p.byTLS() && p.uid == 0 }

// ownerKey is what the peer is told from others by, whatever it is called: "uid:0". Of a
// certificate it is the first name, quoted, so that none looks like another.
func (p peerInfo) ownerKey() string {
	switch {
	case p.commonName != "":
		return "cn:" + strconv.QuoteToASCII(p.commonName)
	case len(p.uris) > 0:
		return "uri:" + strconv.QuoteToASCII(p.uris[0])
	}
	return "uid:" + strconv.FormatUint(uint64(p.uid), 10)
}

// process says which one is at the other end, for people: "pid 4711 (netemctl)"; empty where
// the agent cannot see it.
func (p peerInfo) process() string {
	if p.pid <= 0 {
		return ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
	if err != nil {
		return fmt.Sprintf("pid %d", p.pid)
	}
	return fmt.Sprintf("pid %d (%s)", p.pid, printable(strings.TrimSpace(string(name))))
}

// access is the peer as the rules see it.
func (p peerInfo) access() access.Peer {
	return access.Peer{
		UID: p.uid, GIDs: append([]uint32{p.gid}, p.groups...), Certificate: p.byTLS(), CommonName: p.commonName, URIs: p.uris, Owner: p.owner,
	}
}

// names are what the certificate says, each with its kind, which makes a common name that
// looks like a URI none.
func (p peerInfo) names() []string {
	var names []string
	if p.commonName != "" {
		names = append(names, "CN "+printable(p.commonName))
	}
	for _, u := range p.uris {
		names = append(names, "URI "+printable(u))
	}
	return names
}

// audit is the peer as the log of who did what has it.
func (p peerInfo) audit() *audit.Peer {
	if p.byTLS() || p.address != "" {
		return &audit.Peer{Certificate: p.names(), Address: p.address}
	}
	return &audit.Peer{UID: &p.uid, GID: &p.gid, PID: p.pid, Groups: p.groups}
}

// unixPeer asks the kernel who connected (SO_PEERCRED and SO_PEERGROUPS of unix(7)).
func unixPeer(uc *net.UnixConn) (peerInfo, error) {
	raw, err := uc.SyscallConn()
	if err != nil {
		return peerInfo{}, err
	}
	var cred *unix.Ucred
	var groups []uint32
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr == nil {
			groups, credErr = peerGroups(int(fd))
		}
	}); err != nil {
		return peerInfo{}, err
	}
	if credErr != nil {
		return peerInfo{}, fmt.Errorf("peer credentials: %w", credErr)
	}
	return peerInfo{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		uid:            cred.Uid, gid: cred.Gid, pid: cred.Pid, groups: groups, owner: named(cred.Uid),
		session: sync.OnceValue(func() string { return sessionOf(int(cred.Pid)) }),
	}, nil
}

// peerGroups reads SO_PEERGROUPS (Linux 4.13), for which x/sys has no call: an array of
// gid_t, and ERANGE with the length that it needs.
func peerGroups(fd int) ([]uint32, error) {
	const few, size = 32, 4
	groups := make([]uint32, few)
	for {
		length := uint32(len(groups) * size)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&length)), 0)
		switch {
		case errno == 0:
			return slices.Clip(groups[:length/size]), nil
		case errno == unix.ERANGE && int(length/size) > len(groups):
			groups = make([]uint32, length/size)
		default:
			return nil, errno
		}
	}
}

// door is the transport credentials of both listeners: a unix socket tells who the peer
// is by the kernel's word, and adds no encryption; a TCP one by TLS.
type door struct {
	tls *tlsDoor // nil: no TCP
	// admission bounds how many connections a peer has.
	admission *admission
	// refuse tells a peer that was not let in, as far as it is known.
	refuse func(peerInfo, error)
}

func (d door) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	in, info, err := d.ask(conn)
	if err == nil {
		in, err = d.admission.admit(in, info)
	}
	if err != nil {
		d.refuse(info, err) // before the peer sees its end
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, info, nil
}

// ask finds out who is at the other end.
func (d door) ask(conn net.Conn) (net.Conn, peerInfo, error) {
	if uc, ok := conn.(*net.UnixConn); ok {
		info, err := unixPeer(uc)
		return conn, info, err
	}
	if d.tls == nil {
		return conn, peerInfo{}, fmt.Errorf("peer credentials: %T is no unix socket", conn)
	}
	return d.tls.handshake(conn)
}

func (d door) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

func (d door) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "netemd-peer"}
}

func (d door) Clone() credentials.TransportCredentials { return d }

func (d door) OverrideServerName(string) error { return nil }

// owner says who calls, for people.
func owner(ctx context.Context) string {
	info, ok := peerOf(ctx)
	if !ok {
		return unknownOwner
	}
	return info.owner
}

func named(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("uid %s (%s)", id, u.Username)
	}
	return "uid " + id
}

// ownerKey is what the caller is told from others by.
func ownerKey(ctx context.Context) string {
	info, ok := peerOf(ctx)
	if !ok {
		return "unknown"
	}
	return info.ownerKey()
}

// clearingOwner is ownerKey, or "" for root, who may clear anybody's fault.
func clearingOwner(ctx context.Context) string {
	if info, ok := peerOf(ctx); ok && info.root() {
		return ""
	}
	return ownerKey(ctx)
}

func peerOf(ctx context.Context) (peerInfo, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return peerInfo{}, false
	}
	info, ok := p.AuthInfo.(peerInfo)
	return info, ok
}
