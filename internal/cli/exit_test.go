package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestUnsupportedHints: what an engine or a device cannot do says what could.
func TestUnsupportedHints(t *testing.T) {
	for line, want := range map[string]string{
		"loss 20% --dev lo --port 80 --direction ingress":      "hint: write --direction egress",
		"loss 20% --dev lo --port 80 --direction ingress -- x": "hint: write --direction egress",
		"loss 20% --dev lo":               "",
		"compare --target pg --slot 10ms": "",
		"toxic down --target pg":          "",
	} {
		w := world{agent: newFakeAgent()}
		refuse := func() { w.agent.err = fmt.Errorf("not here: %w", errors.ErrUnsupported) }
		if w.agent.during = refuse; !strings.HasPrefix(line, "compare") { // that measures first
			refuse()
		}
		code := w.run(t.Context(), strings.Fields(line)...)
		_, hint, _ := strings.Cut(w.stderr.String(), "not here: unsupported operation\n")
		if code != exitUnsupported || !strings.HasPrefix(hint, want) || want == "" && hint != "" || w.commands != nil {
			t.Errorf("%s: exit code %d, %q", line, code, w.stderr.String())
		}
	}
}
