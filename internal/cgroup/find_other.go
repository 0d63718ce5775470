//go:build !linux

package cgroup

import (
	"errors"
	"fmt"
)

// Find needs Linux.
func Find(text string) (Group, error) {
	return Group{}, fmt.Errorf("find cgroup %s: %w", text, errors.ErrUnsupported)
}
