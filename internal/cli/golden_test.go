package cli

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/feature"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var unreachable = hinted{fmt.Errorf("%w: nothing listens at /run/netemd/netemd.sock", client.ErrUnreachable), "start it with: netemd"}

// TestGolden runs command lines one after the other in one world, and compares all
// that they print, and their exit codes, with testdata/NAME.golden.
func TestGolden(t *testing.T) {
	sound := feature.Report{
		Kernel: "6.12.0", Features: []feature.Feature{{Name: "sch_netem", State: feature.Yes}, {Name: "tcx", State: feature.Yes}, {Name: "tun", State: feature.Yes}},
		Auto: fault.Netem, AutoReason: "a try in a scratch namespace succeeded",
	}
	for _, c := range []struct {
		name  string
		world world
		lines []string
	}{
		{name: "help", lines: []string{"--help", "help exit-codes", "loss --help", "toxic --help", "toxic latency --help", "compare --help", "lab exec --help", "help lab exec", "help lab exec x"}},
		{name: "refused", lines: []string{
			"loss 20", "loss 120%", "loss -1%", "loss -1% --target pg", "loss 1,5% --target pg", "loss 0.1 --target pg", "loss NaN% --target pg",
			"loss --target pg", "loss 20% 30% --target pg", "loss 20%", "delay 5", "delay -5ms --target pg", "loss 0% --target pg",
			"apply --loss 20 --target pg", "apply --loss -1% --target pg", "apply --target pg", "apply --target pg --delay 10ms --limit 0",
			"apply --target pg --jitter 5ms", "loss 20% --target pg --direction up", "loss 20% --target pg --engine iptables",
			"loss 20% --target pg --ttl 5", "loss 20% --target pg --ttl 0s", "loss 20% --target pg --ttl 25h", "loss 20% --target pg --seed x",
			"loss 20% --target pg --seed 0", "loss 20% --target pg --limit -1", "loss 20% --target pg --limit abc", "loss 1e2% --target pg", "loss 0.00000001% --target pg",
			"los 20%", "frobnicate", "lab ups", "target", "help frob", "help toxic frob", "completion tcsh", "completion", "lab", "toxic", "probe", "loss 20% --los 3%", "-o yaml list", "watch -o json", "clear", "clear f1 --all",
			"change f1", "list x", "list -- x", "toxic latency --target pg", "toxic bandwidth --rate 1mbps --target pg",
			"toxic limit_data --bytes 200 --target pg", "probe pg --target pg -n 0", "probe pg", "lab exec server",
			"lab exec server --", "lab exec server -o json -- true", "loss 20% --target pg --", "loss 20% --target pg -o json -- true", "toxic down --target pg -o jsonl -- true", "doctor --engine stream",
		}},
		{name: "plan", lines: []string{
			"loss 20% --target pg --dry-run", "loss 20% --target pg --dry-run -o json", "loss 20% --target pg --dry-run --engine netem -o jsonl",
			"delay 100ms --jitter 20ms --target pg --dry-run --engine netem --direction both -o json",
			"reorder 25% --delay 10ms --target pg --dry-run --engine ebpf -o json", "partition --target pg --direction from --dry-run",
			"loss 20% --target nope --dry-run", "loss 20% --seed 7 --target pg --dry-run", "delay 5m --jitter 100ns --target pg --dry-run",
			"delay 20ms --jitter 7us --target pg --dry-run", "delay 274s --jitter 64us --target pg --dry-run",
			"duplicate 1% --duplicate-correlation 5% --target pg --dry-run",
		}},
		{name: "faults", lines: []string{
			"list", "list -o json", "list -o jsonl", "loss 20% --target pg", "delay 100ms --jitter 20ms --target pg --ttl 90s --direction both -o json",
			"toxic latency --latency 300ms --jitter 100ms --target pg", "list", "list -o jsonl", "show f1", "show f1 -o json", "show f9",
			"show f3 -o json", "change f1 --loss 0%", "change f1 --loss 5% --delay 0ms", "renew f1 --ttl 2h", "renew f2", "loss 20% --target nope", "clear f1", "clear f1", "clear --target pg -o json",
			"clear --all",
		}},
		{name: "labs", lines: []string{
			"lab list", "lab show pg", "lab up pg", "lab list", "lab show pg -o json", "lab up nope", "target list", "target list -o json",
			"target resolve pg", "target resolve nope", "lab exec client -- ip addr", "lab down pg", "lab down pg",
		}},
		{name: "doctor", world: world{stale: []string{"ghost"}}, lines: []string{
			"doctor", "doctor -o json", "doctor --engine auto", "doctor --engine netem", "doctor --engine ebpf",
		}},
		{name: "doctor-sound", world: world{agent: &fakeAgent{features: sound}}, lines: []string{"doctor", "doctor --engine netem"}},
		{name: "no-agent", world: world{dialErr: unreachable}, lines: []string{
			"loss 20% --target pg", "list", "doctor", "lab up pg", "probe pg --target pg", "compare --target pg", "loss 20% --target pg --dry-run -o jsonl",
		}},
		{name: "denied", world: world{dialErr: hinted{fmt.Errorf("agent socket: %w", fs.ErrPermission), "run as root"}}, lines: []string{"loss 20% --target pg"}},
		{name: "unsupported", world: world{agent: &fakeAgent{err: hinted{fmt.Errorf("netem: kernel 6.18.5 has no sch_netem: %w", errors.ErrUnsupported), "--engine ebpf works here"}}},
			lines: []string{"loss 20% --target pg --engine netem"}},
		{name: "conflict", world: world{agent: &fakeAgent{err: fmt.Errorf("%w: f1 of uid 1000 holds pg for 9m more", fault.ErrConflict)}},
			lines: []string{"loss 20% --target pg"}},
		{name: "probe", lines: []string{"probe pg --target pg -n 40", "probe pg --target pg -n 40 -o json", "probe pg --target pg --layer proxy -n 10 -o jsonl"}},
		{name: "compare", lines: []string{
			"compare --target pg", "loss 5% --target pg", "compare --target pg --loss 5%", "clear --all",
			"loss 5% --loss-correlation 25% --target pg", "show f5", "clear --all", "compare --target pg --loss 5% --loss-correlation 25%",
		}},
		{name: "compare-inconclusive", world: world{agent: &fakeAgent{}}, lines: []string{"compare --target pg --loss 20%"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &c.world
			if w.agent == nil {
				w.agent = newFakeAgent()
			}
			var got strings.Builder
			for _, line := range c.lines {
				w.stdout.Reset()
				w.stderr.Reset()
				code := w.run(t.Context(), strings.Fields(line)...)
				fmt.Fprintf(&got, "$ netemctl %s\n%s", line, w.stdout.String())
				for l := range strings.Lines(w.stderr.String()) {
					fmt.Fprintf(&got, "! %s", l)
				}
				fmt.Fprintf(&got, "=> %d\n\n", code)
			}
			golden(t, c.name, got.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got (accept with -update):\n%s", diff)
	}
}
