//go:build !linux

package try

import (
	"context"
	"runtime"

	"netemd/internal/feature"
)

// Netem says that only Linux has sch_netem.
func Netem(context.Context) feature.Feature {
	return feature.Feature{
		Name: "sch_netem", State: feature.No,
		Detail: "sch_netem is part of Linux, and this is " + runtime.GOOS,
		Hint:   "run netemd on a Linux host or VM, and point netemctl at its socket",
	}
}
