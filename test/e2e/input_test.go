package e2e

import (
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"
)

// testBadInput holds the exit codes and that each error is one line (and a hint)
// that says what is allowed or known.
func testBadInput(t *testing.T, a agent) {
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"loss 20 --target pg", 2, "20%"},
		{"loss 120% --target pg", 2, "from 0% to 100%"},
		{"loss -1% --target pg", 2, "from 0% to 100%"},
		{"loss 0,5% --target pg", 2, "from 0% to 100%"},
		{"loss NaN% --target pg", 2, "from 0% to 100%"},
		{"loss 20% --target nope", 1, "known: pg"},
		{"loss 20%", 2, "--target"},
		{"delay 5 --target pg", 2, "5ms"},
		{"delay 10ms --limit 0 --target pg", 2, "limit"},
		{"delay 10ms --jitter 20ms --target pg", 2, "jitter"},
		{"reorder 25% --target pg", 2, "delay"},
		{"loss 20% --target pg --ttl 0s", 2, "ttl"},
		{"loss 20% --target pg --ttl 100h", 2, "ttl"},
		{"loss 20% --target pg --direction up", 2, "to, from, both, egress or ingress"},
		{"loss 20% --target pg --engine magic", 2, "auto, netem or ebpf"},
		{"loss 20% --target ../x", 2, "target"},
		{"show f99", 1, "f99"},
		{"clear f99", 1, "f99"},
		{"change f99 --loss 1%", 1, "f99"},
		{"lab up nope", 1, "built in: pg"},
		{"probe pg --target pg -n 0", 2, "from 1 to"},
		{"toxic latency --latency 5 --target pg", 2, "latency"},
		{"frobnicate", 2, "loss"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			r := a.ctl(strings.Fields(tt.args)...)
			if r.code != tt.code {
				t.Errorf("exit code %d, want %d: %s", r.code, tt.code, r.stderr)
			}
			if !strings.Contains(r.stderr, tt.want) {
				t.Errorf("%q does not say %q", r.stderr, tt.want)
			}
			if lines := strings.Count(r.stderr, "\n"); lines > 2 || r.stdout != "" {
				t.Errorf("%d lines of error and %q on stdout, want an error of one line, with a hint at most", lines, r.stdout)
			}
		})
	}
	if list := data[faultList](t, a.must("list", "-o", "json"), "faults"); len(list.Faults) != 0 {
		t.Errorf("bad input made faults: %+v", list)
	}
}

// TestDryRun needs neither an agent nor root.
func TestDryRun(t *testing.T) {
	r := ctl(t, "loss", "20%", "--target", "pg", "--dry-run", "-o", "json", "--engine", "netem", "--socket", filepath.Join(t.TempDir(), "none"))
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	plan := data[struct {
		Engine     string `json:"engine"`
		Placement  string `json:"placement"`
		Direction  string `json:"direction"`
		Operations []struct {
			TC         string `json:"tc"`
			OptionsHex string `json:"options_hex"`
		} `json:"operations"`
		Warnings []string `json:"warnings"`
	}](t, r, "plan")
	if plan.Engine != "netem" || plan.Direction != "to" || len(plan.Operations) != 1 || plan.Placement == "" || plan.Warnings == nil {
		t.Fatalf("plan: %+v", plan)
	}
	op := plan.Operations[0]
	if !strings.HasPrefix(op.TC, "tc") || !strings.Contains(op.TC, "loss 20%") {
		t.Errorf("tc: %q", op.TC)
	}
	// struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter, 32 bits each;
	// 20 % of 2^32-1 is 0x33333333.
	raw, err := hex.DecodeString(op.OptionsHex)
	if err != nil || len(raw) < 24 || hex.EncodeToString(raw[8:12]) != "33333333" || hex.EncodeToString(raw[4:8]) == "00000000" {
		t.Errorf("options_hex %q: %v", op.OptionsHex, err)
	}
}

// TestNoAgent: every command that needs one says so with exit code 5.
func TestNoAgent(t *testing.T) {
	for _, args := range []string{"list", "loss 20% --target pg", "lab up pg", "clear --all", "probe pg --target pg", "compare --target pg", "watch", "doctor"} {
		r := ctl(t, append(strings.Fields(args), "--socket", filepath.Join(t.TempDir(), "none"))...)
		if r.code != 5 || !strings.Contains(r.stderr, "netemd") {
			t.Errorf("%s: exit code %d, %s", args, r.code, r.stderr)
		}
	}
}
