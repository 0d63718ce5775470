package content

import (
	"maps"
	"slices"
	"strings"
)

// Field is a number that a packet carries.
type Field uint8

// The fields, as in the package's documentation.
const (
	IP4 Field = iota
	IP6
	TCP
	UDP
	ICMP
	IPLen
	IPTTL
	IPDSCP
	IPECN
	IPID
	IPProto
	IPFrag
	TCPSYN
	TCPACK
	TCPFIN
	TCPRST
	TCPPSH
	TCPURG
	TCPFlags
	TCPSeq
	TCPAckSeq
	TCPWindow
	TCPLen
	TCPSrcPort
	TCPDstPort
	UDPLen
	UDPSrcPort
	UDPDstPort
	ICMPType
	ICMPCode
	PayloadLen
	fields
)

// names are the fields as they are written.
var names = map[string]Field{
	"ip4": IP4, "ip6": IP6, "tcp": TCP, "udp": UDP, "icmp": ICMP,
	"ip.len": IPLen, "ip.ttl": IPTTL, "ip.dscp": IPDSCP, "ip.ecn": IPECN, "ip.id": IPID, "ip.proto": IPProto, "ip.frag": IPFrag,
	"tcp.syn": TCPSYN, "tcp.ack": TCPACK, "tcp.fin": TCPFIN, "tcp.rst": TCPRST, "tcp.psh": TCPPSH, "tcp.urg": TCPURG,
	"tcp.flags": TCPFlags, "tcp.seq": TCPSeq, "tcp.ackseq": TCPAckSeq, "tcp.window": TCPWindow, "tcp.len": TCPLen,
	"tcp.srcport": TCPSrcPort, "tcp.dstport": TCPDstPort,
	"udp.len": UDPLen, "udp.srcport": UDPSrcPort, "udp.dstport": UDPDstPort,
	"icmp.type": ICMPType, "icmp.code": ICMPCode,
	"payload.len": PayloadLen,
}

// FieldNames are all of them, sorted.
func FieldNames() []string { return slices.Sorted(maps.Keys(names)) }

// String is the field as it is written.
func (f Field) String() string {
	for name, g := range names {
		if f == g {
			return name
		}
	}
	return "no field"
}

// Flag is the bit of tcp.flags that f stands for, 0 for another field.
func (f Field) Flag() uint8 {
	switch f {
	case TCPFIN:
		return 1
	case TCPSYN:
		return 2
	case TCPRST:
		return 4
	case TCPPSH:
		return 8
	case TCPACK:
		return 16
	case TCPURG:
		return 32
	}
	return 0
}

// condition reports whether f is one by itself.
func (f Field) condition() bool { return f <= ICMP || f == IPFrag || f.Flag() != 0 }

// alike are the fields of a name's first part, for who mistyped the second.
func alike(name string) string {
	first, _, _ := strings.Cut(name, ".")
	var all []string
	for _, n := range FieldNames() {
		if strings.HasPrefix(n, first+".") {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		all = FieldNames()
	}
	return strings.Join(all, ", ")
}
