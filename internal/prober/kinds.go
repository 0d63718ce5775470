package prober

import (
	"errors"
	"fmt"

	"netemd/probe"
)

// maker makes the caller of one kind from an order whose request is valid and has its
// defaults. A caller that keeps connections has Close() error, which is called once,
// after its last call has returned.
type maker func(Order) (probe.Caller, error)

// kinds are the makers by the kind's name. Each kind has a file of its own, which
// enters it in its init function.
var kinds = map[string]maker{}

// caller makes what the order asks for, its policy around it.
func (o Order) caller() (probe.Caller, error) {
	kind := o.Request.WithDefaults().Kind
	m, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("probe: kind %s: %w", kind, errors.ErrUnsupported)
	}
	c, err := m(o)
	if err != nil {
		return nil, err
	}
	return o.underPolicy(c)
}
