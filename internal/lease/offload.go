package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
)

// Offloads reads and switches what devices do with segments.
type Offloads interface {
	// Read returns the settings of the devices through which packets of the places pass.
	Read(ctx context.Context, places []target.Place) ([]fault.Offload, error)
	// Off switches off what makes packets that are several on the wire, in the name of
	// a fault, and returns what it did. When it fails everything is as it was.
	Off(ctx context.Context, id string, devices []fault.Offload) ([]fault.Offload, error)
	// Restore switches back what was switched off in the name of a fault; nothing is no
	// error, nor are devices that are gone, which it returns.
	Restore(ctx context.Context, id string) (gone []fault.Offload, err error)
}

// settings are those of a path of our own devices, which nobody else changes, when they
// were read last: reading takes longer than putting a fault into force does.
type settings struct {
	found []fault.Offload
	at    time.Time
}

// settingsTime is how long they are believed.
const settingsTime = 10 * time.Second

// ownSettings returns what is known of the path.
func (m *Manager) ownSettings(key string) ([]fault.Offload, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.settings, func(_ string, s settings) bool { return time.Since(s.at) > settingsTime })
	s, ok := m.settings[key]
	return s.found, ok
}

// forgetSettings has them read anew.
func (m *Manager) forgetSettings() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.settings)
}

// offloadRead records the settings of h's path in f, h's fault or what becomes of it,
// where they matter: reading takes as long as all the rest of an apply. That they cannot
// be read is worth a warning, unless they are to be changed. The caller holds the lane.
func (m *Manager) offloadRead(ctx context.Context, h *held, f *fault.Fault) error {
	off := f.Spec.Offload == fault.OffloadOff
	switch {
	case !off && (m.cfg.Offloads == nil || hitsSuperPackets(f.Spec) == ""):
		return nil
	case m.cfg.Offloads == nil:
		return fmt.Errorf("apply: offload settings cannot be changed here: %w", errors.ErrUnsupported)
	}
	key := strings.Join(h.lanes(), "\n")
	if found, ok := m.ownSettings(key); ok && !off {
		f.Offloads = found
		return nil
	}
	if found, ok := h.together[key]; ok && !off {
		f.Offloads = found
		return nil
	}
	found, err := m.cfg.Offloads.Read(ctx, h.places())
	switch {
	case err == nil:
		f.Offloads = found
		if h.together != nil {
			h.together[key] = found
		}
		if !slices.ContainsFunc(h.places(), func(p target.Place) bool { return !p.Owned }) {
			m.mu.Lock()
			m.settings[key] = settings{found, time.Now()}
			m.mu.Unlock()
		}
	case off || errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("apply: %w", err)
	default:
		m.note(h, func(n *notes) { n.offload = "the path's offload settings could not be read: " + err.Error() })
	}
	return nil
}

// offloadOff switches segmentation off where h asks for it.
func (m *Manager) offloadOff(ctx context.Context, h *held) error {
	if h.fault.Spec.Offload != fault.OffloadOff {
		return nil
	}
	defer m.forgetSettings()
	done, err := m.cfg.Offloads.Off(ctx, h.fault.ID, h.fault.Offloads)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.fault.Offloads = done
	h.fault.Warnings = h.warnings()
	return nil
}

// offloadRestore undoes offloadOff, also when ctx has ended.
func (m *Manager) offloadRestore(ctx context.Context, h *held) error {
	if h.fault.Spec.Offload != fault.OffloadOff {
		return nil
	}
	defer m.forgetSettings()
	ctx, cancel := undoing(ctx)
	defer cancel()
	gone, err := m.cfg.Offloads.Restore(ctx, h.fault.ID)
	for _, o := range gone {
		m.cfg.Log.Info("offload settings need not come back, the device is gone", "fault", h.fault.ID, "device", where(o))
	}
	return err
}
