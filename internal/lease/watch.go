package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"netemd/internal/fault"
)

// watchBuffer is how many events a watcher may lag behind before it is cut off.
const watchBuffer = 256

// ErrSlowWatcher ends a watch whose reader fell too far behind: it has missed
// events and must list again.
var ErrSlowWatcher = errors.New("watch: reader too slow, events were missed")

type broadcaster struct {
	mu     sync.Mutex
	subs   map[chan fault.Event]bool
	closed bool
}

func newBroadcaster() *broadcaster { return &broadcaster{subs: map[chan fault.Event]bool{}} }

func (b *broadcaster) send(e fault.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.subs {
		select {
		case ch <- e:
		default:
			delete(b.subs, ch)
			close(ch)
		}
	}
}

func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for ch := range b.subs {
		delete(b.subs, ch)
		close(ch)
	}
}

func (m *Manager) publish(kind string, f fault.Fault) {
	m.events.send(fault.Event{Time: time.Now(), Kind: kind, Fault: f})
}

// Watch calls f for every event from now on, until ctx ends, f fails or the
// Manager is closed (nil).
func (m *Manager) Watch(ctx context.Context, f func(fault.Event) error) error {
	ch := make(chan fault.Event, watchBuffer)
	m.events.mu.Lock()
	if m.events.closed {
		m.events.mu.Unlock()
		return nil
	}
	m.events.subs[ch] = true
	m.events.mu.Unlock()
	defer func() {
		m.events.mu.Lock()
		delete(m.events.subs, ch)
		m.events.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e, ok := <-ch:
			if !ok {
				m.events.mu.Lock()
				defer m.events.mu.Unlock()
				if m.events.closed {
					return nil
				}
				return ErrSlowWatcher
			}
			if err := f(e); err != nil {
				return err
			}
		}
	}
}
