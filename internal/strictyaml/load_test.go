package strictyaml

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/qdisc"
)

// endless gives zeros for ever, and counts them.
type endless struct{ given int }

func (e *endless) Read(b []byte) (int, error) {
	clear(b)
	e.given += len(b)
	return len(b), nil
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte("name: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Load(t.Context(), path); err != nil || string(text) != "name: a\n" {
		t.Errorf("Load() = %q, %v", text, err)
	}
	if _, err := Load(t.Context(), path+"x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v, want one that says so", err)
	}
	if _, err := Load(t.Context(), t.TempDir()); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a folder: %v, want EISDIR", err)
	}
}

func TestLoadIsBounded(t *testing.T) {
	var e endless
	_, err := LoadFrom(t.Context(), "zeros", &e)
	if !errors.Is(err, qdisc.ErrInvalid) || err.Error() != "zeros: file: is too large, want at most 1048576 bytes" {
		t.Errorf("LoadFrom() = %v", err)
	}
	if e.given > 2*MaxSize {
		t.Errorf("%d bytes were read of an endless file", e.given)
	}
	if _, err := LoadFrom(t.Context(), "full", strings.NewReader(strings.Repeat("#", MaxSize))); err != nil {
		t.Errorf("a file of the largest size: %v", err)
	}
}

// A pipe to which nobody writes: opening it and reading from it wait.
func TestLoadEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	silent, writer := io.Pipe()
	defer writer.Close()
	stop := errors.New("stopped")
	for name, load := range map[string]func(context.Context) error{
		"open": func(ctx context.Context) error { _, err := Load(ctx, path); return err },
		"read": func(ctx context.Context) error { _, err := LoadFrom(ctx, "-", silent); return err },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stop)
		if err := load(ctx); !errors.Is(err, stop) {
			t.Errorf("%s: %v, want the cause of the context", name, err)
		}
	}
	if w, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil { // the reader left behind may go
		_ = w.Close()
	}
}
