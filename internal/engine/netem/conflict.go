package netem

import (
	"fmt"
	"io/fs"

	"netemd/internal/target"
)

// ConflictError says what stands where a fault was to go. It is an fs.ErrExist.
type ConflictError struct {
	Place target.Place
	// Found is what stands there: "a foreign root, htb 77:".
	Found string
}

func (e *ConflictError) Error() string { return fmt.Sprintf("netem: %s: %s", e.Place, e.Found) }

// Unwrap makes it an fs.ErrExist.
func (e *ConflictError) Unwrap() error { return fs.ErrExist }
