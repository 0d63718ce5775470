//go:build !linux

package verify

import (
	"context"
	"errors"
	"fmt"
)

// Run returns errors.ErrUnsupported: it needs Linux.
func Run(context.Context, Order, func(sent, total int)) (Result, error) {
	return Result{}, fmt.Errorf("verify: %w", errors.ErrUnsupported)
}
