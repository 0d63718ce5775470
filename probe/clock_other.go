//go:build !linux

package probe

import "time"

var began = time.Now()

// Now is the time on the clock of samples, in ns. It counts from the start of the process: there is no kernel evidence
// here that it would have to agree with.
func Now() int64 { return int64(time.Since(began)) + 1 }
