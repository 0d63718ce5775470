package strictyaml

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Load is the text of the file at path, a pipe among them, of at most MaxSize bytes. The error
// is that of the kernel, which names the path, or the cause of ctx: a pipe to which nobody
// writes keeps nobody who wants to go. A larger file is a *Mistake.
func Load(ctx context.Context, path string) ([]byte, error) {
	return load(ctx, path, func() (io.ReadCloser, error) { return os.Open(path) })
}

// LoadFrom is Load of what is open, such as standard input; name stands for its path. It
// does not close r.
func LoadFrom(ctx context.Context, name string, r io.Reader) ([]byte, error) {
	return load(ctx, name, func() (io.ReadCloser, error) { return io.NopCloser(r), nil })
}

func load(ctx context.Context, path string, open func() (io.ReadCloser, error)) ([]byte, error) {
	type read struct {
		text []byte
		err  error
	}
	done := make(chan read, 1)
	// Opening a pipe, and reading from one, end with its writer alone: when ctx is done first,
	// this stays behind until then, or until the program ends.
	go func() {
		f, err := open()
		if err != nil {
			done <- read{err: err}
			return
		}
		defer func() { _ = f.Close() }()
		text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
		done <- read{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", path, context.Cause(ctx))
	case r := <-done:
		if r.err == nil && len(r.text) > MaxSize {
			return nil, tooLarge(path)
		}
		return r.text, r.err
	}
}

func tooLarge(path string) *Mistake {
	return &Mistake{Path: path, Key: Whole, Wrong: "is too large", Want: fmt.Sprintf("at most %d bytes", MaxSize)}
}
