package lab

import "context"

// Definition returns what a lab that is known was made of, or else ErrUnknown.
func (m *Manager) Definition(_ context.Context, name string) (Definition, error) {
	r, err := m.get(name)
	if err != nil {
		return Definition{}, err
	}
	return r.record.Definition, nil
}
