package cli

import (
	"io"
	"testing"
)

// BenchmarkStart is what a command does in its process before and beside its work: the tree of
// commands, its flags, and the answer.
func BenchmarkStart(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if code := Run(b.Context(), Env{Args: []string{"list", "--help"}, Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}); code != 0 {
			b.Fatal(code)
		}
	}
}
