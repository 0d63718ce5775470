package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"netemd/internal/lab"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

// What a lab left is found by its marks, also when somebody deleted the whole state folder.
func TestCleanupWithoutAFolder(t *testing.T) {
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "s")
	labs, err := lab.New(lab.Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := lab.Definition{
		Name:  fmt.Sprintf("nt-orphan-%d", os.Getpid()),
		Nodes: []lab.Node{{Name: "a"}, {Name: "b"}}, Links: []lab.Link{{A: "a", B: "b"}},
	}
	if _, err := labs.Up(t.Context(), d, lab.Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(labs.Close(), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	removed, err := Cleanup(t.Context(), Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Error(err)
	}
	for _, node := range []string{"a", "b", "wire"} {
		name := d.Namespace(node)
		if !slices.Contains(removed, "namespace "+name+", of a lab without a record") {
			t.Errorf("%s is not told: %q", name, removed)
		}
		if _, err := namespaces.Open(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s stays: %v", name, err)
			_ = namespaces.Delete(name)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state folder is made: %v", err)
	}
}
