package ebpf

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"netemd/internal/testenv"
	"netemd/namespaces"
)

// A name of which somebody is just making or deleting the namespace keeps no sweep from
// its end: there is nothing behind it.
func TestSweepBesideHalfANamespace(t *testing.T) {
	testenv.Root(t)
	whole := fmt.Sprintf("nt-ebpf-%d-whole", os.Getpid())
	if err := namespaces.Create(whole); err != nil { // so that there is a folder for names
		t.Fatal(err)
	}
	defer func() { _ = namespaces.Delete(whole) }()
	half := fmt.Sprintf("nt-ebpf-%d-half", os.Getpid())
	path := filepath.Join(namespaces.Dir, half)
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(path) }()
	if _, err := Sweep(t.Context(), []string{half, whole}); err != nil {
		t.Error(err)
	}
}
