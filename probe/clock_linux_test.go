package probe

import (
	"math"
	"testing"
	"time"
)

// Now is the kernel's CLOCK_MONOTONIC: at some moment of many, the two are next to each other.
func TestNowIsTheKernelsClock(t *testing.T) {
	nearest := int64(math.MaxInt64)
	for range 10_000 {
		before := monotonic()
		now := Now()
		after := monotonic()
		if after-before > int64(50*time.Microsecond) {
			continue // something else ran in between
		}
		if miss := max(before-now, now-after); miss < nearest {
			nearest = miss
		}
		if nearest <= 0 {
			break
		}
		time.Sleep(time.Microsecond)
	}
	if nearest > int64(20*time.Microsecond) {
		t.Errorf("the nearest that they came was %s", time.Duration(nearest))
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
