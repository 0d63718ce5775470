package cli

import (
	"context"
	"fmt"

	"netemd/internal/strictyaml"
)

// fileText is the text of a file that the command line names, - for standard input, of 1 MiB
// at most. One that cannot be read is a wrong argument.
func (a *app) fileText(ctx context.Context, what, path string) ([]byte, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = strictyaml.LoadFrom(ctx, "stdin", a.env.Stdin)
	} else {
		text, err = strictyaml.Load(ctx, path)
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", what, err)}
	}
	return text, nil
}
