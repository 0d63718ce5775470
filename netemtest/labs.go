package netemtest

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/lab"
)

func describe(what string) (description, error) {
	return description{name: what}, nil
}

func (s *Session) labUp(ctx context.Context, d description, name string) (lab.Info, error) {
	return lab.Info{}, fmt.Errorf("TODO: %w", errors.ErrUnsupported)
}
