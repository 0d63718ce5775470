package lab

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/failpoint"
)

// impaired reports whether a link has a base impairment.
func (l *layout) impaired() bool { return len(l.bases()) > 0 }

// bases returns the devices that carry base impairments.
func (l *layout) bases() []*device {
	var bases []*device
	for _, s := range l.spots {
		for _, d := range s.devices {
			if d.impairment != nil {
				bases = append(bases, d)
			}
		}
	}
	return bases
}

// impair puts the base impairments on.
func (m *Manager) impair(ctx context.Context, l *layout) error {
	bases := l.bases()
	if len(bases) > 0 && m.cfg.Engine == nil {
		return fmt.Errorf("no engine for base impairments: %w", errors.ErrUnsupported)
	}
	return each(ctx, len(bases), func(ctx context.Context, i int) error {
		p := l.at(bases[i])
		if err := locate(ctx, &p); err != nil {
			return err
		}
		if err := m.cfg.Engine.Set(ctx, p, *bases[i].impairment); err != nil {
			return fmt.Errorf("base impairment of links[%d], %s in %s: %w", bases[i].link, p.Device, p.Namespace, err)
		}
		failpoint.At("lab.up.impaired")
		return nil
	})
}

// unimpair takes the base impairments away, as far as their devices are still there: who
// carries them must let go of the namespaces.
func (m *Manager) unimpair(ctx context.Context, l *layout) error {
	if m.cfg.Engine == nil {
		return nil
	}
	bases := l.bases()
	return all(len(bases), func(i int) error {
		p := l.at(bases[i])
		if err := locate(ctx, &p); err != nil {
			return nil //nolint:nilerr // gone, or never made
		}
		return m.cfg.Engine.Clear(ctx, p)
	})
}
