package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy is the child's one proxy. All changes go through replace and open.
type proxy struct {
	server                 *toxiproxy.ApiServer
	name, listen, upstream string
	log                    zerolog.Logger
	// startOver executes the process anew; it returns only when it cannot.
	startOver func() error
	// limit of taking a fault away before the process starts over.
	limit time.Duration

	// turn is had by who replaces the proxy, or changes it for a client. Toxiproxy may hang
	// below it, so who must not hang with it does not wait for it without end.
	turn turn
	// epoch counts the orders, so that a timer of an old one does nothing.
	epoch int
	timer *time.Timer
	// down says that a fault disabled the proxy, and no client of its API; faulty that one
	// is in force.
	down, faulty bool
}

// maxLeaked is how many goroutines there may be, without a proxy, before the
// process starts over; its own are about ten. A connection that is cut while data
// for a slow reader waits in its toxics leaves one, and the data (6 MB were seen):
// Toxiproxy's writer goes, and what feeds it waits for ever.
const maxLeaked = 32

// errDisabled refuses a fault through which nothing would pass anyway.
var errDisabled = errors.New("a client of the proxy's API has disabled it: no connection passes it")

var errNoDeadline = errors.New("a fault needs deadline_unix_ns in the future")

// anyEpoch makes replace act whatever the last order was.
const anyEpoch = -1

// replace carries out o, unless another order came after epoch. What Toxiproxy
// does not understand is refused before anything changes.
//
// It returns how many goroutines the connections that it cut left behind.
func (p *proxy) replace(o order, epoch int) (left int, err error) {
	p.turn.take()
	defer p.turn.give()
	if epoch != anyEpoch && epoch != p.epoch {
		return 0, nil
	}
	next := toxiproxy.NewProxy(p.server, p.name, p.listen, p.upstream)
	others, disabled, err := p.clients()
	if err != nil {
		return 0, err
	}
	for _, t := range append(others, o.Toxics...) {
		// No connection is there yet, so adding cannot hang.
		if _, err := next.Toxics.AddToxicJson(bytes.NewReader(t)); err != nil {
			return 0, err
		}
	}
	until := time.Until(time.Unix(0, o.DeadlineUnixNS))
	isFault := !o.Enabled || len(o.Toxics) > 0
	switch {
	case isFault && until <= 0:
		return 0, errNoDeadline
	case isFault && disabled:
		return 0, errDisabled
	}
	p.epoch++
	if p.timer != nil {
		p.timer.Stop()
	}
	if isFault {
		// Before the toxics, so that they end even when the rest hangs. The timer's
		// clock is the monotonic one: setting the wall clock moves nothing.
		epoch := p.epoch
		p.timer = time.AfterFunc(until, func() { p.open("deadline", epoch) })
	}
	p.down, p.faulty = !o.Enabled, isFault
	return p.swap(next, o.Enabled && !disabled)
}

// clients are the toxics that clients of the API have on the proxy, and whether they disabled
// it. The caller has the turn.
func (p *proxy) clients() (toxics []json.RawMessage, disabled bool, err error) {
	old, err := p.server.Collection.Get(p.name)
	if err != nil {
		return nil, false, nil // the first one
	}
	old.Lock()
	disabled = !old.Enabled && !p.down
	old.Unlock()
	all, err := toxicsOf(old)
	for _, t := range all {
		var named struct{ Name string }
		if err := json.Unmarshal(t, &named); err != nil {
			return nil, false, err
		}
		if !strings.HasPrefix(named.Name, mark+"-") {
			toxics = append(toxics, t)
		}
	}
	return toxics, disabled, err
}

// toxicsOf are the toxics of a proxy as the API has them.
func toxicsOf(p *toxiproxy.Proxy) (all []json.RawMessage, err error) {
	text, err := json.Marshal(p.Toxics.GetToxicArray())
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// state is the proxy as the API has it.
func (p *proxy) state() (any, error) {
	now, err := p.server.Collection.Get(p.name)
	if err != nil {
		return nil, err
	}
	toxics, err := toxicsOf(now)
	if err != nil {
		return nil, err
	}
	now.Lock()
	defer now.Unlock()
	return struct {
		Name     string            `json:"name"`
		Listen   string            `json:"listen"`
		Upstream string            `json:"upstream"`
		Enabled  bool              `json:"enabled"`
		Toxics   []json.RawMessage `json:"toxics"`
	}{now.Name, now.Listen, now.Upstream, now.Enabled, toxics}, nil
}

// swap puts next in the place of the running proxy, unless they are the same.
func (p *proxy) swap(next *toxiproxy.Proxy, enabled bool) (left int, err error) {
	old, err := p.server.Collection.Get(p.name)
	if err == nil && same(old, next, enabled) {
		return 0, nil
	}
	if err == nil {
		// Stops accepting, then cuts the open connections.
		if err := p.server.Collection.Remove(p.name); err != nil {
			return 0, err
		}
		left = leaked()
	}
	if err := p.server.Collection.Add(next, enabled); err != nil {
		return left, fmt.Errorf("listen on %s: %w", p.listen, err)
	}
	return left, nil
}

// leaked is called when no proxy runs, and gives the connections that were cut a
// moment to end.
func leaked() int {
	n := runtime.NumGoroutine()
	for end := time.Now().Add(50 * time.Millisecond); n > maxLeaked && time.Now().Before(end); n = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond)
	}
	return n
}

// same reports whether old does already what next shall do.
func same(old, next *toxiproxy.Proxy, enabled bool) bool {
	old.Lock()
	was := old.Enabled
	old.Unlock()
	x, errX := json.Marshal(old.Toxics.GetToxicArray())
	y, errY := json.Marshal(next.Toxics.GetToxicArray())
	return was == enabled && errX == nil && errY == nil && bytes.Equal(x, y)
}

// open takes every fault away because of what why says, and starts the process
// over when that hangs, fails or leaves too much behind: a proxy that nobody
// controls must let traffic through. With an epoch it does nothing once another
// order has come.
func (p *proxy) open(why string, epoch int) {
	done := make(chan error, 1)
	go func() {
		left, err := p.replace(order{Enabled: true}, epoch)
		if err == nil && left > maxLeaked {
			err = fmt.Errorf("cut connections left %d goroutines", left)
		}
		done <- err
	}()
	err := errors.New("proxy control stuck")
	select {
	case err = <-done:
	case <-time.After(p.limit):
	}
	if err != nil {
		p.log.Error().Err(err).Str("because", why).Msg("taking the fault away; the proxy starts over")
		p.log.Error().Err(p.startOver()).Msg("starting over")
	}
}
