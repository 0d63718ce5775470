package cli

import (
	"errors"

	"netemd/qdisc"
)

func parseTC(string) (qdisc.Patch, error) { return qdisc.Patch{}, errors.ErrUnsupported }
