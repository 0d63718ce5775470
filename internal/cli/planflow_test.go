package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

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
