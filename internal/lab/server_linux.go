package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"netemd/internal/testbed/control"
	"netemd/qdisc"
)

// Server looks at a service LAB/SERVICE of kind http-echo, http-tier or payment, after its settings were
// replaced where there is a text of them, and its counters set to 0 where that is asked for.
// The error is a *qdisc.FieldError for settings that are wrong, and fs.ErrNotExist for a service
// that is down.
func (m *Manager) Server(ctx context.Context, key string, text []byte, reset bool) (control.State, error) {
	r, s, err := m.serviceNamed(key)
	if err != nil {
		return control.State{}, err
	}
	if err := m.why(r); err != nil {
		return control.State{}, err
	}
	if !slices.Contains(control.Kinds(), s.Kind) {
		return control.State{}, &qdisc.FieldError{Field: "service", Value: key, Want: "a service of kind " + strings.Join(control.Kinds(), ", ")}
	}
	c := control.Client{Path: filepath.Join(s.Home, control.Socket)}
	fail := func(err error) (control.State, error) {
		if bad, ok := errors.AsType[*control.RefusedError](err); ok {
			err = &qdisc.FieldError{Field: "settings", Why: bad.Text}
		}
		return control.State{}, fmt.Errorf("server %s: %w", key, err)
	}
	if text != nil {
		if len(text) > 0 {
			if text, err = r.layout.settings(text); err != nil {
				return fail(err)
			}
		}
		if _, err := c.Set(ctx, text); err != nil {
			return fail(err)
		}
	}
	ask := c.State
	if reset {
		ask = c.Reset
	}
	state, err := ask(ctx)
	if err != nil {
		return fail(err)
	}
	return state, nil
}

// OwnSettings are those with which a service LAB/SERVICE starts.
func (m *Manager) OwnSettings(key string) ([]byte, error) {
	r, s, err := m.serviceNamed(key)
	if err != nil {
		return nil, err
	}
	for _, n := range r.record.Definition.Nodes {
		for _, d := range n.Services {
			if d.Name == s.Name {
				return []byte(d.Settings), nil
			}
		}
	}
	return nil, nil
}
