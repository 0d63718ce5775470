package ebpf

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/fault"
	"netemd/qdisc"
)

type queue struct{}

func (q *queue) alive() error           { return nil }
func (q *queue) drain()                 {}
func (q *queue) close() error           { return nil }
func (q *queue) totals() fault.Counters { return fault.Counters{} }

func (pl *place) divert(context.Context, qdisc.Netem) error {
	return fmt.Errorf("delay, reorder, duplicate and corrupt: %w", errors.ErrUnsupported)
}
