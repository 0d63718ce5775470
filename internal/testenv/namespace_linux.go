package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// HalfNamespace returns a name of which somebody is just making or deleting the namespace: a
// file without a mount, which is there until the test ends. It needs root.
func HalfNamespace(t testing.TB) string {
	t.Helper()
	Root(t)
	name := fmt.Sprintf("nt-%d-half", os.Getpid())
	path := filepath.Join(namesDir, name)
	if err := os.MkdirAll(namesDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return name
}
