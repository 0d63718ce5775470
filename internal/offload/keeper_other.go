//go:build !linux

package offload

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/fault"
	"netemd/internal/target"
)

var errLinux = fmt.Errorf("offload: needs Linux: %w", errors.ErrUnsupported)

// Read is for Linux only.
func (k *Keeper) Read(context.Context, []target.Place) ([]fault.Offload, error) {
	return nil, errLinux
}

// Off is for Linux only.
func (k *Keeper) Off(context.Context, string, []fault.Offload) ([]fault.Offload, error) {
	return nil, errLinux
}

// Restore is for Linux only.
func (k *Keeper) Restore(context.Context, string) ([]fault.Offload, error) { return nil, errLinux }

// Repair is for Linux only.
func (k *Keeper) Repair(context.Context) (back, gone []fault.Offload, err error) {
	return nil, nil, errLinux
}
