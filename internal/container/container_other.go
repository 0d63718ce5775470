//go:build !linux

package container

import (
	"context"
	"errors"
	"fmt"
)

// Find needs Linux.
func Find(context.Context, string) (Container, error) {
	return Container{}, fmt.Errorf("find a container: %w", errors.ErrUnsupported)
}

// List needs Linux.
func List(context.Context) ([]Container, error) {
	return nil, fmt.Errorf("find containers: %w", errors.ErrUnsupported)
}

// Started needs Linux.
func Started(int) (uint64, error) {
	return 0, fmt.Errorf("find a process: %w", errors.ErrUnsupported)
}
