package stream

import "time"

// turn is a mutex that need not be waited for for ever. newTurn makes one.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }

func (t turn) give() { <-t }

// takeWithin is false when the turn did not come in that time.
func (t turn) takeWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case t <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}
