package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"netemd/internal/client"
	"netemd/internal/feature"
)

// TestPlanSaysWhichWay: what netemd puts at the hook depends on the kernel, and is said
// as far as an agent knows it; where it is what tc can type, no other line is shown.
func TestPlanSaysWhichWay(t *testing.T) {
	report := func(tcx feature.State) *fakeAgent {
		a := newFakeAgent()
		a.features = feature.Report{Kernel: "6.99", Features: []feature.Feature{{Name: "tcx", State: tcx}}}
		return a
	}
	for name, c := range map[string]struct {
		world world
		line  string
		note  string
		tcx   bool
	}{
		"tcx":       {world{agent: report(feature.Yes)}, "loss 1% --dev v0", "6.99, has it", true},
		"none":      {world{agent: report(feature.No)}, "loss 1% --dev v0", "6.99, has none", false},
		"not tried": {world{agent: report(feature.Inconclusive)}, "loss 1% --dev v0", "no agent says", true},
		"no agent":  {world{dialErr: client.ErrUnreachable}, "loss 1% --dev v0", "no agent says", true},
		"a lab":     {world{agent: report(feature.Yes)}, "loss 1% --target pg", "", false},
		"ebpf":      {world{agent: report(feature.Yes)}, "loss 1% --dev v0 --engine ebpf", "", true},
	} {
		w := c.world
		if code := w.run(t.Context(), append(shellWords(c.line), "--dry-run", "-o", "json")...); code != exitDone {
			t.Fatalf("%s: exit code %d: %s", name, code, w.stderr.String())
		}
		var doc struct{ Data planView }
		if err := json.Unmarshal([]byte(w.stdout.String()), &doc); err != nil {
			t.Fatal(err)
		}
		found := slices.IndexFunc(doc.Data.Warnings, func(s string) bool { return strings.HasPrefix(s, "tcx: ") })
		if (found >= 0) != (c.note != "") || found >= 0 && !strings.Contains(doc.Data.Warnings[found], c.note) {
			t.Errorf("%s: warnings %q, want %q in one", name, doc.Data.Warnings, c.note)
		}
		if got := doc.Data.Operations[0].TCX != ""; got != c.tcx {
			t.Errorf("%s: %+v, want a line for tcx: %v", name, doc.Data.Operations[0], c.tcx)
		}
	}
}

// TestPreferences: the kernel takes one kind of packet for each preference, and what
// is left alone has to be asked for first.
func TestPreferences(t *testing.T) {
	for _, line := range []string{
		"partition --dev v0 --exclude-port 22,9526", "partition --dev v0 --exclude-dst 192.0.2.1,2001:db8::1 --direction both",
		"partition --dev v0 --dst 192.0.2.1,2001:db8::1 --exclude-port 22", "partition --dev lo --port 80 --src 127.0.0.1,::1 --exclude-dst ::1 --direction both",
	} {
		w := world{agent: newFakeAgent()}
		if code := w.run(t.Context(), append(shellWords(line), "--dry-run", "-o", "json")...); code != exitDone {
			t.Fatalf("%s: exit code %d: %s", line, code, w.stderr.String())
		}
		var doc struct{ Data planView }
		if err := json.Unmarshal([]byte(w.stdout.String()), &doc); err != nil {
			t.Fatal(err)
		}
		kinds := map[string]string{}
		taken := map[int]bool{}
		filters := 0
		for _, o := range doc.Data.Operations {
			var device, hook, kind string
			var preference int
			if _, err := fmt.Sscanf(o.TC, "tc filter add dev %s %s protocol %s pref %d flower", &device, &hook, &kind, &preference); err != nil {
				continue
			}
			filters++
			at := fmt.Sprintf("%s %d", hook, preference)
			if known := kinds[at]; known != "" && known != kind {
				t.Errorf("%s: preference %s is of %s and of %s", line, at, known, kind)
			}
			kinds[at] = kind
			place := preference / 10
			pass := strings.HasSuffix(o.TC, "action pass")
			if pass && taken[place] {
				t.Errorf("%s: left alone behind what is taken: %s", line, o.TC)
			}
			taken[place] = taken[place] || !pass
		}
		if filters == 0 {
			t.Errorf("%s: no filter", line)
		}
	}
}
