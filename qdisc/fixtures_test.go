package qdisc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixture is what a real tc sent for its arguments (testdata/capture.sh).
type fixture struct{ arguments, options string }

func fixtures(t testing.TB, file string) []fixture {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var all []fixture
	for line := range strings.Lines(string(b)) {
		if arguments, options, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			all = append(all, fixture{arguments, options})
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return all
}

// parsed reads the arguments of a fixture. tc's own limit of 1000 stands where they
// have none; ours would be what Normalize gives.
func (f fixture) parsed(t testing.TB) Netem {
	t.Helper()
	n, err := ParseTC(f.arguments)
	if err != nil {
		t.Fatalf("%s: %v", f.arguments, err)
	}
	if n.Limit == 0 {
		n.Limit = 1000
	}
	return n
}

func (f fixture) compare(t *testing.T, b []byte) {
	t.Helper()
	got := hex.EncodeToString(b)
	if strings.HasPrefix(f.options, "sha256:") {
		sum := sha256.Sum256([]byte(got))
		got = "sha256:" + hex.EncodeToString(sum[:])
	}
	if got != f.options {
		t.Errorf("%s:\n got %s\n tc  %s", f.arguments, hex.EncodeToString(b[:min(len(b), 400)]), f.options)
	}
}

// overflowing is what tc sends as shares of 100 % and a 2^32nd together, which the kernel
// takes for 0 (TestMarshalOptionsBeyondTC).
const overflowing = "loss state 0% 50% 50% 100% 100%"

// For every option, with values at the edges of every field, our bytes are those of
// iproute2 6.1's tc.
func TestMarshalOptionsEqualsTC(t *testing.T) {
	for _, f := range fixtures(t, "tc.txt") {
		n := f.parsed(t)
		b, err := n.MarshalOptions()
		if err != nil {
			t.Errorf("%s: %v", f.arguments, err)
			continue
		}
		if f.arguments != overflowing {
			f.compare(t, b)
		}
		back, err := UnmarshalOptions(b)
		if err != nil {
			t.Errorf("%s: %v", f.arguments, err)
		}
		if diff := cmp.Diff(n.Normalize(), back); diff != "" {
			t.Errorf("%s: read back (-want +got):\n%s", f.arguments, diff)
		}
		if differ := n.Differences(back); differ != nil {
			t.Errorf("%s: differences %q", f.arguments, differ)
		}
	}
}

// They are those of iproute2 6.15's tc, too, with two differences that are meant:
//   - It leaves the times of tc_netem_qopt 0 and sends every delay in the 64-bit
//     attributes, which override them. We send what fits in both forms, as 6.1's tc
//     does.
//   - It takes a delay without a unit for nanoseconds; its manual still says
//     microseconds, as 6.1's tc has it, and so do we.
func TestMarshalOptionsEqualsNewerTC(t *testing.T) {
	for _, f := range fixtures(t, "tc-newer.txt") {
		n := f.parsed(t)
		b, err := n.MarshalOptions()
		if err != nil {
			t.Errorf("%s: %v", f.arguments, err)
			continue
		}
		if f.arguments == "delay 100000 20000" {
			n.Delay, n.Jitter = n.Delay/1000, n.Jitter/1000
		}
		delay := strings.Contains(f.arguments, "delay") || strings.Contains(f.arguments, "latency")
		if f.arguments != overflowing {
			f.compare(t, newer(t, b, n, delay))
		}
		back, err := UnmarshalOptions(newer(t, b, n, delay))
		if differ := n.Differences(back); err != nil || differ != nil {
			t.Errorf("%s: %v, differences %q", f.arguments, err, differ)
		}
	}
}

// newer makes the newer tc's form of the times of options.
func newer(t *testing.T, b []byte, n Netem, delay bool) []byte {
	t.Helper()
	out := bytes.Clone(b[:qoptSize])
	order.PutUint32(out, 0)
	order.PutUint32(out[20:], 0)
	if delay {
		out = appendAttr(out, attrLatency64, order.AppendUint64(nil, uint64(n.Delay)))
	}
	if n.Jitter != 0 {
		out = appendAttr(out, attrJitter64, order.AppendUint64(nil, uint64(n.Jitter)))
	}
	rest := b[qoptSize:]
	err := eachAttr(rest, func(attr uint16, v []byte) error {
		if attr != attrLatency64 && attr != attrJitter64 {
			if attr == attrLoss {
				attr |= 0x8000
			}
			out = appendAttr(out, attr, v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What TC says has the bytes of what it was made from.
func TestTCEqualsArguments(t *testing.T) {
	for _, f := range fixtures(t, "tc-newer.txt") {
		n := f.parsed(t)
		again, err := ParseTC(n.TC())
		if diff := cmp.Diff(n.Normalize(), again.Normalize()); err != nil || diff != "" {
			t.Errorf("%s became %s: %v (-want +got):\n%s", f.arguments, n.TC(), err, diff)
		}
	}
}
