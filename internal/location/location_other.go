//go:build !linux

package location

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/target"
)

// Find needs Linux.
func (Finder) Find(context.Context, target.Definition) (target.Target, error) {
	return target.Target{}, fmt.Errorf("find a target: %w", errors.ErrUnsupported)
}
