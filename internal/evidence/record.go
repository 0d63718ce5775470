package evidence

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"netemd/probe"
)

// A record is what the programs in programs_linux.go write: offsets in bytes, in
// the machine's byte order but for the addresses and the remote port, which are
// in the network's.
const (
	recTime        = 0
	recCookie      = 8
	recLocal       = 16
	recRemote      = 32
	recLocalPort   = 48
	recRemotePort  = 50
	recFamily      = 52
	recState       = 54
	recCAState     = 55
	recPending     = 56
	recRetransmits = 57
	recKind        = 58
	recSize        = 64
)

// The kinds of a record: which tracepoint wrote it.
const (
	kindSegment = 0 // tcp_retransmit_skb
	kindSYNACK  = 1 // tcp_retransmit_synack
	// kindNeighbour is one of neighbourPoints: its address stands in recRemote.
	kindNeighbour = 2
)

// The states of an entry of the neighbour tables (NUD_*, include/uapi/linux/neighbour.h).
const (
	nudIncomplete = 0x01
	nudFailed     = 0x20
)

// Numbers of the kernel: enum in include/net/tcp_states.h, enum tcp_ca_state in
// include/uapi/linux/tcp.h, ICSK_TIME_* in include/net/inet_connection_sock.h.
const (
	stateSynSent      = 2
	caRecovery        = 3
	caLoss            = 4
	pendingTLP        = 5
	familyInet        = 2
	familyInet6       = 10
	caBits            = 5
	caMask       byte = 1<<caBits - 1
)

// decode reads a record. caShift is where the congestion state's bits begin in
// their byte.
func decode(b []byte, caShift uint) (probe.Retransmission, error) {
	if len(b) < recSize {
		return probe.Retransmission{}, fmt.Errorf("retransmission record: %d bytes, want %d", len(b), recSize)
	}
	local, err := address(b[recLocal:], binary.NativeEndian.Uint16(b[recFamily:]))
	if err != nil {
		return probe.Retransmission{}, err
	}
	remote, err := address(b[recRemote:], binary.NativeEndian.Uint16(b[recFamily:]))
	if err != nil {
		return probe.Retransmission{}, err
	}
	ca := b[recCAState] >> caShift & caMask
	return probe.Retransmission{
		TimeNS:  int64(binary.NativeEndian.Uint64(b[recTime:])),
		Cookie:  binary.NativeEndian.Uint64(b[recCookie:]),
		Local:   netip.AddrPortFrom(local, binary.NativeEndian.Uint16(b[recLocalPort:])),
		Remote:  netip.AddrPortFrom(remote, binary.BigEndian.Uint16(b[recRemotePort:])),
		Cause:   classify(b[recKind], b[recState], ca, b[recPending], b[recRetransmits]),
		Server:  b[recKind] == kindSYNACK,
		State:   b[recState],
		CAState: ca,
	}, nil
}

// decodeNeighbour reads a record of a neighbour.
func decodeNeighbour(b []byte) (probe.NeighbourEvent, error) {
	if len(b) < recSize {
		return probe.NeighbourEvent{}, fmt.Errorf("neighbour record: %d bytes, want %d", len(b), recSize)
	}
	at, err := address(b[recRemote:], binary.NativeEndian.Uint16(b[recFamily:]))
	if err != nil {
		return probe.NeighbourEvent{}, err
	}
	return probe.NeighbourEvent{
		TimeNS:  int64(binary.NativeEndian.Uint64(b[recTime:])),
		Cookie:  binary.NativeEndian.Uint64(b[recCookie:]),
		Address: at,
		Waiting: b[recState]&nudIncomplete != 0,
		Failed:  b[recState]&nudFailed != 0,
	}, nil
}

func address(b []byte, family uint16) (netip.Addr, error) {
	switch family {
	case familyInet:
		return netip.AddrFrom4([4]byte(b[:4])), nil
	case familyInet6:
		return netip.AddrFrom16([16]byte(b[:16])).Unmap(), nil // an IPv6 socket may talk IPv4
	}
	return netip.Addr{}, fmt.Errorf("record: address family %d", family)
}

// classify says why the kernel sent a segment again, from the socket's state at
// that moment (net/ipv4/tcp_timer.c, tcp_output.c, tcp_input.c):
//
//   - a retransmission timeout enters the state Loss before it sends, and what is
//     sent in that state later is sent because of it;
//   - a tail loss probe is sent while its timer's number still stands in
//     icsk_pending, outside of recovery;
//   - everything that acknowledgements or RACK's timer found lost is sent in the
//     state Recovery.
//
// In any other state a repeated timeout shows in icsk_retransmits.
func classify(kind, state, ca, pending, retransmits byte) probe.Cause {
	switch {
	case kind == kindSYNACK, state == stateSynSent:
		return probe.SYNRetransmit
	case ca == caLoss:
		return probe.RTO
	case ca == caRecovery:
		return probe.FastRetransmit
	case pending == pendingTLP:
		return probe.TLP
	case retransmits > 0:
		return probe.RTO
	}
	return probe.Unknown
}
