package evidence

import (
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// layout is where the running kernel keeps what a record needs, in bytes from the
// start of the socket: a struct sock or a struct request_sock, both of which begin
// with a struct sock_common.
type layout struct {
	family, state         uint32
	local4, remote4       uint32
	local6, remote6       uint32 // 0 without CONFIG_IPV6
	localPort, remotePort uint32
	net                   uint32
	caState               uint32
	caShift               uint // of the bit field within its byte
	pending, retransmits  uint32
	cookie                uint32 // in struct net
	// failure: tcp_retransmit_skb has an argument that says whether sending failed.
	// Kernels without it (6.12 and before) are silent on failures.
	failure bool
}

func kernelLayout() (layout, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return layout{}, fmt.Errorf("kernel types (BTF): %w", err)
	}
	var l layout
	for _, f := range []struct {
		into        *uint32
		typ, member string
		optional    bool
	}{
		{&l.family, "sock_common", "skc_family", false},
		{&l.state, "sock_common", "skc_state", false},
		{&l.local4, "sock_common", "skc_rcv_saddr", false},
		{&l.remote4, "sock_common", "skc_daddr", false},
		{&l.local6, "sock_common", "skc_v6_rcv_saddr", true},
		{&l.remote6, "sock_common", "skc_v6_daddr", true},
		{&l.localPort, "sock_common", "skc_num", false},
		{&l.remotePort, "sock_common", "skc_dport", false},
		{&l.net, "sock_common", "skc_net", false},
		{&l.pending, "inet_connection_sock", "icsk_pending", false},
		{&l.retransmits, "inet_connection_sock", "icsk_retransmits", false},
		{&l.cookie, "net", "net_cookie", false},
	} {
		at, err := memberOffset(spec, f.typ, f.member)
		if err != nil && !f.optional {
			return layout{}, err
		}
		*f.into = uint32(at.Bytes())
	}
	ca, err := memberOffset(spec, "inet_connection_sock", "icsk_ca_state")
	if err != nil {
		return layout{}, err
	}
	l.caState, l.caShift = uint32(ca/8), uint(ca%8)
	l.failure, err = hasFailure(spec)
	return l, err
}

// memberOffset finds a member, also one in an unnamed struct or union within typ.
func memberOffset(spec *btf.Spec, typ, member string) (btf.Bits, error) {
	var s *btf.Struct
	if err := spec.TypeByName(typ, &s); err != nil {
		return 0, fmt.Errorf("kernel types (BTF): struct %s: %w", typ, err)
	}
	if at, ok := findMember(s.Members, member); ok {
		return at, nil
	}
	return 0, fmt.Errorf("kernel types (BTF): struct %s has no %s", typ, member)
}

func findMember(members []btf.Member, name string) (btf.Bits, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset, true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if at, ok := findMember(inner, name); ok {
			return m.Offset + at, true
		}
	}
	return 0, false
}

// hasFailure looks at the tracepoint's own prototype: (void *, sock, skb) or (void
// *, sock, skb, int err).
func hasFailure(spec *btf.Spec) (bool, error) {
	var t *btf.Typedef
	if err := spec.TypeByName("btf_trace_tcp_retransmit_skb", &t); err != nil {
		return false, fmt.Errorf("kernel types (BTF): tracepoint tcp_retransmit_skb: %w", err)
	}
	if p, ok := btf.UnderlyingType(t).(*btf.Pointer); ok {
		if f, ok := p.Target.(*btf.FuncProto); ok {
			return len(f.Params) > 3, nil
		}
	}
	return false, fmt.Errorf("kernel types (BTF): tracepoint tcp_retransmit_skb is not a function")
}
