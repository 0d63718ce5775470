//go:build !linux

package evidence

import (
	"errors"
	"fmt"

	"netemd/probe"
)

// Config says what to collect.
type Config struct {
	Cookies []uint64
	Buffer  int
}

// Collector needs Linux.
type Collector struct{}

// Start needs Linux.
func Start(Config) (*Collector, error) {
	return nil, fmt.Errorf("evidence: retransmissions are traced on Linux: %w", errors.ErrUnsupported)
}

// Drain needs Linux.
func (*Collector) Drain() ([]probe.Retransmission, error) { return nil, errors.ErrUnsupported }

// Neighbours needs Linux.
func (*Collector) Neighbours() ([]probe.NeighbourEvent, error) { return nil, errors.ErrUnsupported }

// Lost needs Linux.
func (*Collector) Lost() (uint64, error) { return 0, errors.ErrUnsupported }

// Stop needs Linux.
func (*Collector) Stop() ([]probe.Retransmission, uint64, error) {
	return nil, 0, errors.ErrUnsupported
}
