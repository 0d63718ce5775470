package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// peerCredentials are transport credentials for a unix socket: they add no
// encryption, and tell who the peer is by SO_PEERCRED.
type peerCredentials struct{}

// peerInfo is the peer as the kernel knows it from the time of its connect.
type peerInfo struct {
	credentials.CommonAuthInfo
	uid uint32
	// pid is 0 where the peer is in a pid namespace that is not below the agent's.
	pid int32
	// owner says who that is: "uid 0 (root)".
	owner string
}

// AuthType names the credentials in gRPC's terms.
func (peerInfo) AuthType() string { return "unix-peer" }

func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("peer credentials: %T is no unix socket", conn)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, nil, err
	}
	if credErr != nil {
		return nil, nil, fmt.Errorf("peer credentials: %w", credErr)
	}
	return conn, peerInfo{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		uid:            cred.Uid, pid: cred.Pid, owner: named(cred.Uid),
	}, nil
}

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func (peerCredentials) OverrideServerName(string) error { return nil }

// owner says who calls.
func owner(ctx context.Context) string {
	info, ok := peerOf(ctx)
	if !ok {
		return "unknown"
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

// clearingOwner is owner, or "" for root, who may clear anybody's fault.
func clearingOwner(ctx context.Context) string {
	if info, ok := peerOf(ctx); ok && info.uid == 0 {
		return ""
	}
	return owner(ctx)
}

func peerOf(ctx context.Context) (peerInfo, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return peerInfo{}, false
	}
	info, ok := p.AuthInfo.(peerInfo)
	return info, ok
}
