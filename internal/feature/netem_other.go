//go:build !linux

package feature

import (
	"context"
	"runtime"
)

// Netem says that only Linux has sch_netem.
func Netem(context.Context) Feature {
	return Feature{
		Name: "sch_netem", State: No,
		Detail: "sch_netem is part of Linux, and this is " + runtime.GOOS,
		Hint:   "run netemd on a Linux host or VM, and point netemctl at its socket",
	}
}
