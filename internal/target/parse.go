package target

import (
	"slices"
	"strconv"
	"strings"

	"netemd/qdisc"
)

// ParsePorts reads "80" or "8000-8100"; both ends of a range are included. The error
// is a *qdisc.FieldError without a field.
func ParsePorts(s string) (Ports, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := parsePort(first)
	b, errB := parsePort(last)
	if errA != nil || errB != nil || a > b {
		return Ports{}, &qdisc.FieldError{Value: s, Want: wantPorts}
	}
	return Ports{a, b}, nil
}

const wantPorts = "a port from 1 to 65535 or a range of them, such as 5432 or 8000-8100"

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' {
		return 0, strconv.ErrRange
	}
	return uint16(n), nil
}

// The protocols that have names, and those that have ports; numbers of IANA's
// "Assigned Internet Protocol Numbers".
var (
	protocolNames = []namedProtocol{{"tcp", 6}, {"udp", 17}, {"icmp", icmp}, {"icmpv6", icmpv6}, {"sctp", 132}}
	portProtocols = []uint8{6, 17, 33, 132, 136} // TCP, UDP, DCCP, SCTP, UDP-Lite
)

type namedProtocol struct {
	name   string
	number uint8
}

const icmp, icmpv6 = 1, 58

// ParseProtocol reads tcp, udp, icmp, icmpv6, sctp or a number from 1 to 255. The
// error is a *qdisc.FieldError without a field.
func ParseProtocol(s string) (uint8, error) {
	for _, p := range protocolNames {
		if strings.EqualFold(s, p.name) {
			return p.number, nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n == 0 {
		return 0, &qdisc.FieldError{Value: s, Want: "tcp, udp, icmp, icmpv6, sctp or an IP protocol number from 1 to 255"}
	}
	return uint8(n), nil
}

// HasPorts reports whether packets of the protocol have ports: those of TCP, UDP, UDP-Lite,
// SCTP and DCCP do.
func HasPorts(protocol uint8) bool { return hasPorts(protocol) }

func hasPorts(protocol uint8) bool { return slices.Contains(portProtocols, protocol) }
