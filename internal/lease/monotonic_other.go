//go:build !linux

package lease

import "time"

var started = time.Now()

// monotonic counts from this program's start.
func monotonic() int64 { return int64(time.Since(started)) }
