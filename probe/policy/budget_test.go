package policy

import (
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	clock := NewFakeClock()
	take := func(b *budget) (n int) {
		for b.withdraw() {
			n++
		}
		return n
	}
	b := newBudget(Budget{Ratio: 0.1, MaxTokens: 5}, clock)
	if n := take(b); n != 5 {
		t.Errorf("%d at the beginning, want 5", n)
	}
	for range 9 {
		b.deposit()
	}
	if n := take(b); n != 0 {
		t.Errorf("%d after nine calls, want 0", n)
	}
	if b.deposit(); take(b) != 1 {
		t.Error("the tenth call at 10% does not make a token")
	}
	for range 1000 {
		b.deposit()
	}
	if n := take(b); n != 5 {
		t.Errorf("%d saved up, want 5", n)
	}
	clock.Advance(time.Hour)
	if n := take(b); n != 0 {
		t.Errorf("%d came with time, want 0", n)
	}

	b = newBudget(Budget{Ratio: 0.1, MaxTokens: 5, PerSecond: 2}, clock)
	take(b)
	if clock.Advance(499 * ms); take(b) != 0 {
		t.Error("a token of 2 a second came before 500 ms")
	}
	if clock.Advance(1 * ms); take(b) != 1 {
		t.Error("no token of 2 a second came after 500 ms")
	}
	clock.Advance(time.Hour)
	if n := take(b); n != 5 {
		t.Errorf("%d after an hour, want 5", n)
	}
	// Many looks bring as much as one: a look rounds by less than a millionth of a token.
	for range 1000 {
		clock.Advance(1 * ms)
		b.withdraw()
	}
	b = newBudget(Budget{Ratio: 0.1, MaxTokens: 100, PerSecond: 10}, clock)
	take(b)
	n := 0
	for range 100_000 {
		clock.Advance(100 * time.Microsecond)
		if b.withdraw() {
			n++
		}
	}
	if n < 99 || n > 100 {
		t.Errorf("%d tokens in 10 s of 10 a second", n)
	}
}
