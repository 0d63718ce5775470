package plan

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the published schema")

// What is published is what the program says.
func TestSchemaPublished(t *testing.T) {
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
		t.Errorf("%s is not what `netemctl catalogue schema` says: go test ./internal/experiment/plan -update (%v)", SchemaPath, err)
	}
}
