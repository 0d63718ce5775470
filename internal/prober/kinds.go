package prober

import (
	"errors"
	"fmt"
	"io"

	"netemd/probe"
)

// maker makes the caller of one kind from an order whose request is valid and has its
// defaults. A caller that keeps connections has Close() error, which is called once,
// after its last call has returned.
type maker func(Order) (probe.Caller, error)

// kinds are the makers by the kind's name. Each kind has a file of its own, which
// enters it in its init function.
var kinds = map[string]maker{}

// made is what an order asks for.
type made struct {
	probe.Caller              // the kind's, its budget and its policy around it
	inner        probe.Caller // the kind's own
}

// caller makes what the order asks for. stuck is told of a call that will not end.
func (o Order) caller(stuck func(error)) (*made, error) {
	r := o.Request.WithDefaults()
	m, ok := kinds[r.Kind]
	if !ok {
		return nil, fmt.Errorf("probe: kind %s: %w", r.Kind, errors.ErrUnsupported)
	}
	c, err := m(o)
	if err != nil {
		return nil, err
	}
	patience := o.Patience
	if patience == 0 {
		patience = silence
	}
	outer, err := o.underPolicy(&budgeted{Caller: c, timeout: r.Timeout, patience: patience, stuck: stuck})
	if err != nil {
		return nil, err
	}
	return &made{Caller: outer, inner: c}, nil
}

// starter is the caller where its calls need no goroutine each; nil under a policy, and
// for kinds and modes whose calls wait.
func (m *made) starter() probe.Starter {
	if _, bare := m.Caller.(*budgeted); !bare {
		return nil
	}
	s, ok := m.inner.(probe.Starter)
	if x, some := m.inner.(interface{ Startable() bool }); !ok || some && !x.Startable() {
		return nil
	}
	return s
}

// close lets a caller that keeps connections part from its servers.
func (m *made) close() {
	if k, ok := m.inner.(io.Closer); ok {
		_ = k.Close() // the samples are taken: how the goodbye went changes nothing
	}
}

// packets is the caller's account of them, after its last call; nil without one.
func (m *made) packets() *probe.Datagrams {
	d, ok := m.inner.(probe.DatagramCounter)
	if !ok {
		return nil
	}
	all := d.Datagrams()
	return &all
}

// settings are what the caller says of itself; nil where it says nothing.
func (m *made) settings() map[string]string {
	if d, ok := m.inner.(probe.Describer); ok {
		return d.Describe()
	}
	return nil
}
