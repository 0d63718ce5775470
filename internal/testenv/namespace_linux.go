package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"netemd/namespaces"
)

// HalfNamespace returns a name of which somebody is just making or deleting the namespace: a
// file without a mount. It and the folder are there until the test ends; it needs root.
func HalfNamespace(t testing.TB) string {
	t.Helper()
	Root(t)
	whole := fmt.Sprintf("nt-%d-whole", os.Getpid())
	if err := namespaces.Create(whole); err != nil { // so that there is a folder for names
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespaces.Delete(whole) })
	half := fmt.Sprintf("nt-%d-half", os.Getpid())
	path := filepath.Join(namespaces.Dir, half)
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return half
}
