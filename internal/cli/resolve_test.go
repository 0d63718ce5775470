package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

func TestDistributionFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.dist", "# a comment\n-8192 0\n8192\n"), write("bad.dist", "1 2 x\n")

	w := world{agent: newFakeAgent()}
	args := shellWords("delay 100ms --jitter 20ms --target pg --distribution-file")
	if code := w.run(t.Context(), append(args, good)...); code != exitDone {
		t.Fatalf("exit code %d: %s", code, w.stderr.String())
	}
	got := *w.agent.faults[0].Spec.Packet
	if want := qdisc.SamplesOf([]int16{-8192, 0, 8192}); got.Distribution != qdisc.Custom || got.Samples != want {
		t.Errorf("distribution %q with %v", got.Distribution, got.Samples)
	}
	// A shape with a name takes the table away.
	if code := w.run(t.Context(), shellWords("change f1 --distribution normal")...); code != exitDone {
		t.Fatalf("exit code %d: %s", code, w.stderr.String())
	}
	if got := *w.agent.faults[0].Spec.Packet; got.Distribution != qdisc.Normal || got.Samples != "" {
		t.Errorf("distribution %q with %v", got.Distribution, got.Samples)
	}
	garbage := write("garbage", strings.Repeat("\x00\xff", 1000))
	for path, want := range map[string]string{dir: "is a directory", "/dev/zero": "is too large", garbage: `...`, bad: `has "x"`} {
		w.stderr.Reset()
		code := w.run(t.Context(), append(args, path)...)
		text, _, _ := strings.Cut(w.stderr.String(), "\n")
		if code != exitUsage || !strings.Contains(text, want) || !strings.Contains(text, path) || !strings.Contains(text, "--distribution-file") || !strings.Contains(text, "tc's .dist format") || len(text) > 500 {
			t.Errorf("%s: exit code %d: %.600s", path, code, text)
		}
	}
	for _, refused := range [][]string{append(args, bad), append(args, good, "--distribution", "normal"), append(args, dir)} {
		w.stderr.Reset()
		if code := w.run(t.Context(), refused...); code != exitUsage || !strings.Contains(w.stderr.String(), "--distribution-file") {
			t.Errorf("%v: exit code %d: %s", refused, code, w.stderr.String())
		}
	}
	if len(w.agent.faults) != 1 {
		t.Errorf("%d faults", len(w.agent.faults))
	}
}

// TestChangeSizesByWhatIsThere: a queue is sized by the rate and the delay that the
// fault has.
func TestChangeSizesByWhatIsThere(t *testing.T) {
	w := world{agent: newFakeAgent()}
	for _, c := range []struct {
		line  string
		limit uint32
		rate  qdisc.Rate
	}{
		{"apply --target pg --rate 10mbit --delay 100ms", 0, 1_250_000},
		{"change f1 --queue 100ms", qdisc.LimitForQueue(1_250_000, 200*time.Millisecond), 1_250_000},
		{"change f1 --rate 20mbit --queue 100ms", qdisc.LimitForQueue(2_500_000, 200*time.Millisecond), 2_500_000},
		{"change f1 --expect-rate 1gbit --delay 50ms", qdisc.LimitFor(125_000_000, 50*time.Millisecond), 2_500_000},
		{"change f1 --preserve-order", qdisc.LimitFor(125_000_000, 50*time.Millisecond), 2_500_000},
		{"change f1 --rate 0bit --preserve-order", qdisc.LimitFor(125_000_000, 50*time.Millisecond), qdisc.OrderRate},
	} {
		if code := w.run(t.Context(), shellWords(c.line)...); code != exitDone {
			t.Fatalf("%s: exit code %d: %s", c.line, code, w.stderr.String())
		}
		if got := *w.agent.faults[0].Spec.Packet; got.Limit != c.limit || got.Rate != c.rate {
			t.Errorf("%s: limit %d, rate %v, want %d and %v", c.line, got.Limit, got.Rate, c.limit, c.rate)
		}
	}
}

func TestVerifyTimeout(t *testing.T) {
	w := world{agent: newFakeAgent()}
	w.agent.during = func() { time.Sleep(50 * time.Millisecond) }
	w.run(t.Context(), "loss", "20%", "--target", "pg")
	if code := w.run(t.Context(), shellWords("verify f1 --timeout 1ms")...); code != exitInconclusive || !strings.Contains(w.stderr.String(), "not done within --timeout 1ms") {
		t.Errorf("exit code %d: %s", code, w.stderr.String())
	}
}

// TestSelectorIsSent: every flag arrives in its field.
func TestSelectorIsSent(t *testing.T) {
	w := world{agent: newFakeAgent()}
	line := "loss 1% --dev v0 --netns blue --protocol udp --dst a.example,192.0.2.1 --dst 2001:db8::/32 --port 53,5353-5400 --src 10.0.0.0/8 --src-port 1024-65535 " +
		"--exclude-dst b.example --exclude-port 22,9526 --direction ingress --force agent,ssh --force default-route --offload off"
	if code := w.run(t.Context(), shellWords(line)...); code != exitDone {
		t.Fatalf("exit code %d: %s", code, w.stderr.String())
	}
	s := w.agent.faults[0].Spec
	const want = "v0@blue udp dst a.example,192.0.2.1,2001:db8::/32 port 53,5353-5400 src 10.0.0.0/8 src-port 1024-65535 exclude-dst b.example exclude-port 22,9526"
	if got := s.Selector.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if s.Direction != fault.From || strings.Join(s.Force, " ") != "agent ssh default-route" || s.Offload != fault.OffloadOff || s.Target != "" {
		t.Errorf("direction %s, force %v, offload %q, target %q", s.Direction, s.Force, s.Offload, s.Target)
	}
}
