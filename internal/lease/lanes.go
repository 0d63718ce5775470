package lease

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"netemd/internal/target"
)

// lanes let through one at a time for each key.
type lanes struct {
	mu  sync.Mutex
	all map[string]*lane
}

type lane struct {
	// in holds one value while somebody is in the lane.
	in chan struct{}
	// users are those in it and those who wait.
	users int
}

// enter waits for the lanes of all keys, and returns what leaves them. Everybody takes
// them in the order of their keys, so that no two wait for each other; who enters in
// several calls has to keep to that order, too.
func (l *lanes) enter(ctx context.Context, keys []string) (leave func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	var entered []string
	leave = func() {
		for _, k := range entered {
			l.leave(k)
		}
	}
	for _, k := range keys {
		select {
		case l.take(k).in <- struct{}{}:
			entered = append(entered, k)
		case <-ctx.Done():
			l.drop(k)
			leave()
			return nil, fmt.Errorf("waiting for another change of the %s: %w", k[2:], context.Cause(ctx))
		}
	}
	return leave, nil
}

func (l *lanes) take(key string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.all[key]
	if ln == nil {
		ln = &lane{in: make(chan struct{}, 1)}
		l.all[key] = ln
	}
	ln.users++
	return ln
}

func (l *lanes) leave(key string) {
	l.mu.Lock()
	in := l.all[key].in
	l.mu.Unlock()
	<-in
	l.drop(key)
}

func (l *lanes) drop(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[key].users--; l.all[key].users == 0 {
		delete(l.all, key)
	}
}

// The keys: those of targets sort before those of devices.
func packetLane(target string) string { return "1 packets of target " + target }
func streamLane(target string) string { return "1 proxy of target " + target }

func deviceLane(p target.Place) string {
	namespace := p.Namespace
	if p.Cookie != 0 { // one namespace may have several names, and a device, too
		namespace = strconv.FormatUint(p.Cookie, 10)
	}
	return "2 device " + strconv.Itoa(p.Index) + " in namespace " + namespace
}

// lanes are those that what changes h has to be in: its devices', and its target's, so
// that nothing is done to it while the target is taken away.
func (h *held) lanes() []string {
	s := h.fault.Spec
	if s.Outage != nil {
		var keys []string
		for _, name := range s.Outage.Services {
			keys = append(keys, serviceLane(name))
		}
		return keys
	}
	if s.Request != nil {
		return h.requestLanes()
	}
	if !h.isPacket() {
		return []string{streamLane(s.Target)}
	}
	var keys []string
	if h.nowhere() {
		keys = append(keys, "1 fault "+h.fault.ID)
	}
	if s.Selector == nil {
		keys = append(keys, packetLane(s.Target))
	}
	for _, p := range h.slots {
		keys = append(keys, p.lane)
	}
	return keys
}
