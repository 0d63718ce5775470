//go:build !linux

package monotonic

import "time"

var started = time.Now()

// Now counts in ns from this program's start.
func Now() int64 { return int64(time.Since(started)) }
