package labfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is published is what the program says.
func TestSchema(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "..", "..", SchemaPath)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what `netemctl lab schema` says: go test ./internal/lab/labfile -update (%v)", SchemaPath, err)
	}
}
