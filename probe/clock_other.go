//go:build !linux

package probe

import "time"

var began = time.Now()

// monotonicNS counts from the start of the process: there is no kernel evidence
// here that it would have to agree with.
func monotonicNS() int64 { return int64(time.Since(began)) + 1 }
