package evidence

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/probe"
)

// record is what the kernel's program writes for an IPv4 socket.
func record(kind, state, ca, pending, retransmits byte) []byte {
	b := make([]byte, recSize)
	binary.NativeEndian.PutUint64(b[recTime:], 5)
	binary.NativeEndian.PutUint64(b[recCookie:], 6)
	copy(b[recLocal:], []byte{10, 0, 0, 1})
	copy(b[recRemote:], []byte{10, 0, 0, 2})
	binary.NativeEndian.PutUint16(b[recLocalPort:], 40000)
	binary.BigEndian.PutUint16(b[recRemotePort:], 5432)
	binary.NativeEndian.PutUint16(b[recFamily:], familyInet)
	b[recState], b[recCAState], b[recPending], b[recRetransmits], b[recKind] = state, ca, pending, retransmits, kind
	return b
}

func TestDecode(t *testing.T) {
	const established = 1
	local, remote := netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.2:5432")
	tests := []struct {
		name                                  string
		kind, state, ca, pending, retransmits byte
		want                                  probe.Cause
	}{
		{"SYN", kindSegment, stateSynSent, caLoss, 0, 0, probe.SYNRetransmit},
		{"SYN-ACK", kindSYNACK, 12, 0, 0, 0, probe.SYNRetransmit},
		{"timeout", kindSegment, established, caLoss, 0, 1, probe.RTO},
		{"timeout, the bits of other fields set", kindSegment, established, 0xe0 | caLoss, 0, 1, probe.RTO},
		{"recovery, a probe's timer not yet replaced", kindSegment, established, caRecovery, pendingTLP, 0, probe.FastRetransmit},
		{"probe", kindSegment, established, 0, pendingTLP, 0, probe.TLP},
		{"timeout in another state", kindSegment, established, 1, 0, 2, probe.RTO},
		{"nothing that we know", kindSegment, established, 1, 0, 0, probe.Unknown},
	}
	addr := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := decode(record(test.kind, test.state, test.ca, test.pending, test.retransmits), 0)
			if err != nil {
				t.Fatal(err)
			}
			want := probe.Retransmission{TimeNS: 5, Cookie: 6, Local: local, Remote: remote, Cause: test.want,
				Server: test.kind == kindSYNACK, State: test.state, CAState: test.ca & caMask}
			if d := cmp.Diff(want, got, addr); d != "" {
				t.Errorf("record (-want +got):\n%s", d)
			}
		})
	}
	if _, err := decode(make([]byte, recSize-1), 0); err == nil {
		t.Error("a short record is no error")
	}
	if _, err := decode(make([]byte, recSize), 0); err == nil {
		t.Error("a record without an address family is no error")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(record(kindSegment, 1, 4, 5, 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decode(b, 3)
		if err == nil && (!e.Local.IsValid() || e.Cause == "") {
			t.Errorf("%x gives %+v", b, e)
		}
	})
}
