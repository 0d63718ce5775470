package ebpf

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"netemd/internal/content"
	"netemd/internal/match"
	"netemd/internal/testenv"
)

// loadCondition brings an expression into the kernel, as a program that returns 1 or 0.
func loadCondition(t testing.TB, src string, header int) (*ebpf.Program, content.Condition) {
	t.Helper()
	testenv.Root(t)
	cond, err := content.ParseExpr(src)
	if err != nil {
		t.Fatal(err)
	}
	var s match.Sequence
	s.Add(asm.Mov.Reg(rSkb, asm.R1))
	readPacket(&s, header)
	condition(&s, cond, "no")
	s.Add(asm.Mov.Imm(asm.R0, 1), asm.Return())
	s.At("no")
	s.Add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "condition_test", Type: ebpf.SchedCLS, License: "GPL", Instructions: s.Instructions()})
	if err != nil {
		t.Fatalf("%s: %+v", src, err)
	}
	t.Cleanup(func() { prog.Close() })
	return prog, cond
}

// agrees compares the kernel's verdict with Go's.
func agrees(t testing.TB, prog *ebpf.Program, cond content.Condition, packet []byte, header int) bool {
	t.Helper()
	got, err := prog.Run(&ebpf.RunOptions{Data: packet})
	if err != nil {
		t.Fatalf("run on %x: %v", packet, err)
	}
	want := content.Holds(cond, packet, header)
	if (got == 1) != want {
		t.Errorf("%x: the program says %d, Go %t", packet, got, want)
	}
	return want
}

// packets draws packets of all kinds, so alike that fields are often equal.
type packets struct{ *rand.Rand }

func one[T any](p packets, from ...T) T { return from[p.IntN(len(from))] }

// next is a packet behind an Ethernet header and up to three tags.
func (p packets) next() []byte {
	kind := one(p, uint16(0x0800), 0x0800, 0x0800, 0x86dd, 0x86dd, 0x86dd, 0x0806, 0x88cc)
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for range one(p, 0, 0, 0, 1, 2, 3) {
		b = binary.BigEndian.AppendUint16(b, one(p, uint16(0x8100), 0x88a8))
		b = append(b, 0, 7)
	}
	b = binary.BigEndian.AppendUint16(b, kind)
	proto := one(p, byte(6), 6, 6, 6, 17, 17, 1, 58, 132, 47)
	body := p.transport(proto)
	length := len(body) + one(p, 0, 0, 0, 0, -1, 1, 5, -1000)
	switch kind {
	case 0x0800:
		options := one(p, 0, 0, 0, 1, 10)
		fragment := one(p, uint16(0), 0, 0, 0, 0x4000, 0x2000, 185)
		length += 20 + 4*options
		b = append(b, 0x45+byte(options), byte(p.IntN(256)))
		b = binary.BigEndian.AppendUint16(b, uint16(max(0, length)))
		b = binary.BigEndian.AppendUint16(b, uint16(p.IntN(4)))
		b = binary.BigEndian.AppendUint16(b, fragment)
		b = append(b, one(p, byte(1), 64, 255), proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
		b = append(b, make([]byte, 4*options)...)
	case 0x86dd:
		var ext []byte
		next := proto
		for range one(p, 0, 0, 0, 1, 2, 5) {
			number := one(p, byte(0), 43, 44, 60)
			h := make([]byte, 8)
			h[0] = next
			if number == 44 {
				binary.BigEndian.PutUint16(h[2:], one(p, uint16(0), 1, 181<<3))
			} else if p.IntN(3) == 0 {
				h[1] = 1
				h = append(h, make([]byte, 8)...)
			}
			ext, next = append(h, ext...), number
		}
		length += len(ext)
		b = append(b, 0x60|byte(p.IntN(16)), byte(p.IntN(256)), 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(max(0, length)))
		b = append(b, next, one(p, byte(1), 64, 255))
		for range 32 {
			b = append(b, byte(p.IntN(2)))
		}
		b = append(b, ext...)
	}
	b = append(b, body...)
	if p.IntN(4) == 0 {
		b = b[:len(b)-p.IntN(min(len(b)-14, 60))]
	}
	if p.IntN(8) == 0 {
		b[14+p.IntN(len(b)-14)] = byte(p.Uint32())
	}
	return b
}

func (p packets) transport(proto byte) []byte {
	word := func(b []byte) []byte { return binary.BigEndian.AppendUint16(b, one(p, uint16(0), 1, 80, 443, 65535)) }
	b := word(word(nil))
	switch proto {
	case 6:
		words := one(p, byte(5), 5, 5, 8, 15, 4, 0)
		b = word(word(word(word(b))))
		b = append(b, words<<4, one(p, byte(0x02), 0x12, 0x10, 0x18, 0x11, 0x04, byte(p.IntN(256))))
		b = word(word(word(b)))
		b = append(b, make([]byte, 4*max(0, int(words)-5))...)
	case 17:
		b = word(word(b))
	case 1, 58:
		b = append(b[:2], one(p, byte(0), 8, 128), byte(p.IntN(3)), 0, 0)[2:]
		b = append(b, 0, 0, 0, 0)
	}
	const text = "QCOMMIT\x00\x01\xff"
	for range one(p, 0, 0, 1, 5, 12, 100) {
		b = append(b, text[p.IntN(len(text))])
	}
	if p.IntN(3) == 0 {
		b = append(b, text...)
	}
	return b
}

// expr draws an expression of so many terms at most.
func (p packets) expr(terms int) string {
	switch {
	case terms > 1 && p.IntN(3) > 0:
		left := 1 + p.IntN(terms-1)
		s := p.expr(left) + one(p, " && ", " || ") + p.expr(terms-left)
		if p.IntN(2) == 0 {
			s = one(p, "(", "!(") + s + ")"
		}
		return s
	case p.IntN(6) == 0:
		return fmt.Sprintf("payload.at(%d, %s)", p.IntN(12), one(p, `"Q"`, `"CO"`, `"COMMIT"`, `0x0001ff`, `"MMIT\x00\x01\xff"`, `"T"`))
	case p.IntN(3) == 0:
		return one(p, "", "!") + one(p, "tcp", "udp", "icmp", "ip4", "ip6", "ip.frag", "tcp.syn", "tcp.ack", "tcp.fin", "tcp.rst", "tcp.psh", "tcp.urg")
	}
	return p.number(terms-1) + one(p, " == ", " != ", " < ", " <= ", " > ", " >= ") + p.number(1)
}

func (p packets) number(terms int) string {
	if terms > 1 && p.IntN(2) == 0 {
		left := 1 + p.IntN(terms-1)
		return "(" + p.number(left) + one(p, " + ", " - ", " & ", " | ") + p.number(terms-left) + ")"
	}
	switch p.IntN(4) {
	case 0:
		return one(p, "0", "1", "6", "20", "0x10", "40", "64", "80", "443", "65535", "'Q'", "4294967295")
	case 1:
		return fmt.Sprintf("payload[%d]", p.IntN(20))
	}
	return one(p, content.FieldNames()...)
}

func TestConditionAgrees(t *testing.T) {
	expressions, each := 150, 60
	switch {
	case os.Getenv("NETEMD_TEST_LONG") != "":
		expressions = 4000
	case testing.Short():
		expressions = 50
	}
	held, total := 0, 0
	for seed := range expressions {
		p := packets{rand.New(rand.NewPCG(uint64(seed), 1))}
		src := p.expr(1 + p.IntN(8))
		prog, cond := loadCondition(t, src, 14)
		for range each {
			packet := p.next()
			if !runnable(packet) {
				continue
			}
			if agrees(t, prog, cond, packet, 14) {
				held++
			}
			total++
		}
		prog.Close()
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, src)
		}
	}
	if share := float64(held) / float64(total); share < 0.1 || share > 0.9 {
		t.Errorf("%d of %d are true: this compares little", held, total)
	}
}

// runnable reports whether the kernel's test run takes a packet: not what ends before
// the IP header that its EtherType promises (bpf_prog_test_run_skb in net/bpf/test_run.c).
func runnable(packet []byte) bool {
	switch binary.BigEndian.Uint16(packet[12:]) {
	case 0x0800:
		return len(packet) >= 14+20
	case 0x86dd:
		return len(packet) >= 14+40
	}
	return true
}

// Each field means what it says, in the kernel and in Go.
func TestFields(t *testing.T) {
	tcp := []byte("............\x08\x00\x45\xb9\x00\x2e\x12\x34\x20\x00\x40\x06\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02" +
		"\x10\x00\x00\x50\xff\x00\x00\x01\x00\x00\x00\x02\x50\x18\xfe\xdc\x00\x00\x00\x00QCOMMIT")
	udp6 := []byte("............\x86\xdd\x6b\x90\x00\x00\x00\x0a\x11\x07................................" +
		"\x00\x35\x10\x01\x00\x0a\x00\x00hi")
	echo := []byte("............\x08\x00\x45\x00\x00\x1c\x00\x00\x00\x00\x40\x01\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02\x08\x03\x00\x00\x00\x00\x00\x00")
	arp := []byte("............\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01....................")
	for _, tt := range []struct {
		packet []byte
		src    string
		want   bool
	}{
		{tcp, "ip4 && !ip6 && tcp && !udp && !icmp", true},
		{tcp, "ip.len == 46 && ip.ttl == 64 && ip.dscp == 46 && ip.ecn == 1 && ip.id == 0x1234 && ip.proto == 6 && ip.frag", true},
		{tcp, "tcp.srcport == 4096 && tcp.dstport == 80 && tcp.seq == 0xff000001 && tcp.ackseq == 2 && tcp.window == 0xfedc", true},
		{tcp, "tcp.flags == 0x18 && tcp.psh && tcp.ack && !tcp.syn && !tcp.fin && !tcp.rst && !tcp.urg", true},
		// The last byte is behind the end of the IP packet.
		{tcp, "tcp.len == 6 && payload.len == 6 && payload[5] == 'I' && !(payload[6] == 'T') && !(payload[6] != 'T')", true},
		{tcp, `payload.at(0, "QCOMMI") && payload.at(0, 0x51434f4d4d49) && payload.at(5, "I") && !payload.at(1, "COMMIT")`, true},
		{tcp, "udp.len == 6 || udp.len != 6 || udp.srcport < 5000 || icmp.type >= 0", false},
		{tcp, "tcp.dstport - tcp.srcport < 0 && tcp.dstport - tcp.srcport == 80 - 4096", true},
		{tcp, "tcp.flags & 2 | 8 == 8 && (payload[0] & 0xf0) + (payload[1] & 0x0f) == 0x53", true},
		{tcp, "tcp.syn == 0 && tcp.psh + tcp.ack == 2", true},
		{tcp[:13+1+20+19], "tcp && !(tcp.len >= 0) && !(tcp.dstport == 80)", true},
		{udp6, "ip6 && udp && ip.len == 50 && ip.ttl == 7 && ip.dscp == 46 && ip.ecn == 1 && ip.proto == 17 && !ip.frag", true},
		{udp6, "udp.srcport == 53 && udp.dstport == 4097 && udp.len == 2 && payload[1] == 105", true},
		{udp6, "ip.id >= 0 || tcp.syn || tcp.len >= 0", false},
		{udp6, "!(tcp.window > 0)", true},
		{echo, "icmp && icmp.type == 8 && icmp.code == 3 && !(payload.len >= 0)", true},
		{arp, "ip.len >= 0 || ip4 || ip6 || tcp || udp || icmp || ip.frag || payload[0] >= 0", false},
	} {
		prog, cond := loadCondition(t, tt.src, 14)
		if got := agrees(t, prog, cond, tt.packet, 14); got != tt.want {
			t.Errorf("%s of %x: %t, want %t", tt.src, tt.packet, got, tt.want)
		}
	}
}

// The longest expressions are taken by the verifier.
func TestLongestCondition(t *testing.T) {
	sum := "(payload[9]+(payload[8]+(payload[7]+(payload[6]+(payload[5]+(payload[4]+(payload[3]+payload[2])))))))"
	var terms []string
	for i := range content.MaxTerms {
		terms = append(terms, fmt.Sprintf("payload[%d]>1", i))
	}
	text := fmt.Sprintf("payload.at(9,%q)", strings.Repeat("x", content.MaxText))
	for name, src := range map[string]string{
		"and":    strings.Join(terms, "&&"),
		"or":     strings.Join(terms, "||"),
		"mixed":  "(" + strings.Join(terms[:32], "||") + ")&&(" + strings.Join(terms[32:], "||") + ")",
		"fields": strings.TrimSuffix(strings.Repeat("ip.dscp>ip.ttl||", 32), "||"),
		"texts":  strings.TrimSuffix(strings.Repeat(text+"||", 11), "||"),
		"sums":   sum + ">" + sum + "||" + sum + "!=" + sum,
		"not":    strings.Repeat("!", 1000) + "tcp.syn",
	} {
		prog, cond := loadCondition(t, src, 14)
		info, err := prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		verified, _ := info.VerifiedInstructions()
		t.Logf("%s: %d looked at by the verifier", name, verified)
		// The kernel gives up at 1,000,000 (BPF_COMPLEXITY_LIMIT_INSNS).
		if verified > 100_000 {
			t.Errorf("%s: the verifier looked at %d instructions", name, verified)
		}
		p := packets{rand.New(rand.NewPCG(1, 1))}
		for range 50 {
			if packet := p.next(); runnable(packet) {
				agrees(t, prog, cond, packet, 14)
			}
		}
	}
}
