package cli

import (
	"context"
	"io"
	"strings"
	"testing"
)

// zeros are a file without an end, as /dev/zero is.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestEndlessInputIsRefused(t *testing.T) {
	for _, command := range []string{"lab up -", "lab server echo/web --set -"} {
		w := world{agent: newFakeAgent(), stdin: zeros{}}
		if code := w.run(t.Context(), strings.Fields(command)...); code != exitUsage || !strings.Contains(w.stderr.String(), "stdin: file: is too large, want at most 1048576 bytes") {
			t.Errorf("%s: exit code %d: %s", command, code, w.stderr.String())
		}
	}
}

// TestInterruptEndsReading: who waits for a text that does not come can be told to stop.
func TestInterruptEndsReading(t *testing.T) {
	silent, writer := io.Pipe()
	defer writer.Close()
	for _, command := range []string{"lab up -", "lab server echo/web --set -"} {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		w := world{agent: newFakeAgent(), stdin: silent}
		if code := w.run(ctx, strings.Fields(command)...); code != exitInterrupted {
			t.Errorf("%s: exit code %d: %s", command, code, w.stderr.String())
		}
	}
}
