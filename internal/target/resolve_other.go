//go:build !linux

package target

import (
	"context"
	"errors"
	"fmt"
)

// Resolve needs Linux.
func Resolve(context.Context, Selector, Lookup) (Target, error) {
	return Target{}, fmt.Errorf("find a device: %w", errors.ErrUnsupported)
}

// Standing is nil: nothing that could go was found.
func (t Target) Standing() error { return nil }
