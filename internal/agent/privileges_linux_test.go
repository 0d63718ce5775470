package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"netemd/internal/testenv"
)

// reduced gives privileges up and says what the kernel knows of it, a line for each thread
// and one of a child's.
func reduced() (string, error) {
	if _, _, err := ReducePrivileges(); err != nil {
		return "", err
	}
	var all strings.Builder
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return "", err
	}
	for _, t := range threads {
		text, err := os.ReadFile(filepath.Join("/proc/self/task", t.Name(), "status"))
		if err != nil {
			continue // it ended
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Cap") {
				fmt.Fprint(&all, strings.TrimSpace(line), " ")
			}
		}
		fmt.Fprintln(&all)
	}
	return all.String(), nil
}

// What is not needed is given up by all threads, and cannot be had again.
func TestReducePrivileges(t *testing.T) {
	testenv.Root(t)
	out, err := actor{Reduce: true}.command(t).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var want uint64
	for _, p := range Privileges {
		want |= 1 << uint(p.Value)
		if p.Why == "" {
			t.Errorf("%s: no reason", p.Value)
		}
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 10 {
			t.Fatalf("the process said %q", line)
		}
		for i := 0; i < len(fields); i += 2 {
			got, err := strconv.ParseUint(fields[i+1], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got&^want != 0 {
				t.Errorf("%s %x, want at most %x", fields[i], got, want)
			}
			if (fields[i] == "CapEff:" || fields[i] == "CapBnd:") && got == 0 {
				t.Errorf("%s is empty", fields[i])
			}
			if (fields[i] == "CapInh:" || fields[i] == "CapAmb:") && got != 0 {
				t.Errorf("%s %x, want none", fields[i], got)
			}
		}
	}
	if len(lines) < 2 {
		t.Errorf("%d threads were looked at, want several", len(lines))
	}
}
