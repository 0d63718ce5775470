package policy

import (
	"math"
	"sync"
	"time"
)

// token is one, in the parts that a budget counts: a millionth, so that ten calls at 10 %
// are exactly one.
const token = 1_000_000

// budget is a Budget's tokens.
type budget struct {
	clock       Clock
	share, most int64
	perSecond   int64

	mu     sync.Mutex
	tokens int64
	// filled is until when the tokens of PerSecond have come.
	filled int64
}

func newBudget(b Budget, clock Clock) *budget {
	most := int64(b.MaxTokens) * token
	return &budget{
		clock: clock, share: int64(math.Round(b.Ratio * token)), most: most, perSecond: int64(b.PerSecond) * token,
		tokens: most, filled: clock.Now(),
	}
}

// deposit is what a call brings.
func (b *budget) deposit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	b.tokens = min(b.tokens+b.share, b.most)
}

// withdraw takes a token for one more attempt, if there is one.
func (b *budget) withdraw() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fill(); b.tokens < token {
		return false
	}
	b.tokens -= token
	return true
}

// fill brings what came with time.
func (b *budget) fill() {
	now := b.clock.Now()
	if b.perSecond == 0 {
		return
	}
	// What is no whole part stays for the next time: many looks bring as much as one.
	seconds := float64(now-b.filled) / float64(time.Second)
	if came := int64(seconds * float64(b.perSecond)); came > 0 {
		b.tokens = min(b.tokens+came, b.most)
		b.filled += int64(math.Ceil(float64(came) / float64(b.perSecond) * float64(time.Second)))
	}
}
