//go:build !linux

package match

import "errors"

// socketLayout needs Linux.
func socketLayout() (layout, error) { return layout{}, errors.ErrUnsupported }
