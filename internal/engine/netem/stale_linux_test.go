package netem

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
	whole := fmt.Sprintf("nt-netem-%d-whole", os.Getpid())
	if err := namespaces.Create(whole); err != nil { // so that there is a folder for names
		t.Fatal(err)
	}
	defer func() { _ = namespaces.Delete(whole) }()
	half := fmt.Sprintf("nt-netem-%d-half", os.Getpid())
	path := filepath.Join(namespaces.Dir, half)
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(path) }()
	sweeper := New(Config{State: whole})
	if os.Getenv("NETEMD_TEST_NETEM") == "" {
		sweeper.dial = fakeDial
	}
	if _, err := sweeper.sweep(t.Context(), []string{half, whole}); err != nil {
		t.Error(err)
	}
}
