package lab

import (
	"encoding/json"
	"testing"
)

// decoded is a definition as it comes back from a record.
func decoded(t *testing.T, d Definition) (again Definition) {
	t.Helper()
	text, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}
