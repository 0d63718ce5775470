package lease

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"netemd/internal/fault"
	"netemd/internal/monotonic"
)

// KeptEvents is how many events are kept for those who come back: some hours of a busy
// agent.
const KeptEvents = 4096

// ErrSlowWatcher ends a watch whose reader fell too far behind: it has missed
// events and must list again. It matches fault.ErrMissed.
var ErrSlowWatcher = fmt.Errorf("watch: reader too slow: %w", fault.ErrMissed)

// broadcaster numbers the events, and keeps the last ones.
type broadcaster struct {
	life string

	mu sync.Mutex
	// last is the number of the newest event. The event n is at kept[n % KeptEvents].
	last   uint64
	kept   []fault.Event
	subs   map[chan struct{}]bool
	closed bool
}

func newBroadcaster(life string) *broadcaster {
	return &broadcaster{life: life, subs: map[chan struct{}]bool{}}
}

// send numbers e, and wakes who watches.
func (b *broadcaster) send(kind string, f fault.Fault) fault.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	e := fault.Event{Number: b.last, Life: b.life, Time: time.Now(), Monotonic: monotonic.Now(), Kind: kind, Fault: f}
	if i := int(b.last % KeptEvents); i < len(b.kept) {
		b.kept[i] = e
	} else {
		for len(b.kept) < i { // number 0 is never given
			b.kept = append(b.kept, fault.Event{})
		}
		b.kept = append(b.kept, e)
	}
	b.wake()
	return e
}

func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.wake()
}

// wake tells everybody to look. The caller holds the lock.
func (b *broadcaster) wake() {
	for ch := range b.subs {
		select {
		case ch <- struct{}{}:
		default: // he has not looked since he was told before
		}
	}
}

// first is the number of the oldest event that is kept, 1 before there is any. The caller
// holds the lock.
func (b *broadcaster) first() uint64 {
	if b.last <= KeptEvents {
		return 1
	}
	return b.last - KeptEvents + 1
}

// missed says that the events after a number are not to be had. The caller holds the lock.
func (b *broadcaster) missed(after uint64, life string) error {
	there := "none yet"
	if b.last > 0 {
		there = fmt.Sprintf("%d to %d", b.first(), b.last)
	}
	switch {
	case life != "" && life != b.life:
		return fmt.Errorf("watch: %w: those after %d of life %s went with that agent; this one is life %s and has %s", fault.ErrMissed, after, life, b.life, there)
	case after > b.last:
		return fmt.Errorf("watch: %w: there is no event %d; life %s has %s", fault.ErrMissed, after, b.life, there)
	}
	return fmt.Errorf("watch: %w: those after %d are no longer kept; life %s has %s", fault.ErrMissed, after, b.life, there)
}

// begin returns the number of the event before the first that is to be told.
func (b *broadcaster) begin(after uint64, life string) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case after == 0 && life == "":
		return b.last, nil
	case life != "" && life != b.life, after > b.last, after+1 < b.first():
		return 0, b.missed(after, life)
	}
	return after, nil
}

// after returns what came after a number, and whether more may come.
func (b *broadcaster) after(n uint64) (events []fault.Event, more bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n+1 < b.first() {
		return nil, false, fmt.Errorf("%w: stopped at %d, there is %d to %d", ErrSlowWatcher, n, b.first(), b.last)
	}
	for n++; n <= b.last; n++ {
		events = append(events, b.kept[n%KeptEvents])
	}
	return events, !b.closed, nil
}

// A life is named by consonants, of which no word can be made: so many that none has the
// name of another, and a watch that goes on in the wrong one is told so. The ids, which people
// type, begin with the first of them.
const (
	consonants   = "bcdfghjkmnpqrstvwxz"
	lifeLength   = 12
	prefixLength = 3
)

func newLife() string {
	b := make([]byte, lifeLength)
	_, _ = rand.Read(b) // it never fails
	for i := range b {
		b[i] = consonants[int(b[i])%len(consonants)]
	}
	return string(b)
}

// Life names this Manager among those of other agents, before and after it, by 12 letters: it
// is in every event, and its first three begin the ids of its faults.
func (m *Manager) Life() string { return m.events.life }

// Now is what Watch goes on behind to see the events from this moment on.
func (m *Manager) Now() (after uint64, life string) {
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	return m.events.last, m.events.life
}

// Watch calls f for every event, until ctx ends, f fails or the Manager is closed (nil).
// With neither after nor life these are the events from now on; otherwise all that follow
// the one of the number after in that life, an empty life being this one. The error is
// fault.ErrMissed when they are not all kept any more, also later when f is too slow.
func (m *Manager) Watch(ctx context.Context, after uint64, life string, f func(fault.Event) error) error {
	b := m.events
	n, err := b.begin(after, life)
	if err != nil {
		return err
	}
	wake := make(chan struct{}, 1)
	b.mu.Lock()
	b.subs[wake] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.subs, wake)
		b.mu.Unlock()
	}()
	for {
		events, more, err := b.after(n)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := f(e); err != nil {
				return err
			}
			n = e.Number
		}
		if !more {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wake:
		}
	}
}
