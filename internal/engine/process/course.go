package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"netemd/internal/fault"
	"netemd/internal/lab/service"
)

// course is one fault's way through its timetable.
type course struct {
	config Config
	outage fault.Outage
	// began is what the timetable counts from.
	began time.Time
	told  Told
	// stopped is closed when no strike is to begin any more.
	stopped  chan struct{}
	stopOnce sync.Once
	// first is closed when the first strike has happened, or none is due.
	first     chan struct{}
	firstOnce sync.Once
	readers   sync.WaitGroup

	mu      sync.Mutex
	links   map[string]*link
	expires time.Time
	state   fault.OutageRun // without strikes
	refused error           // why the first strike was
	last    bool            // no strike is to come
	// changed is closed, and made anew, whenever something happened.
	changed chan struct{}
}

// link is what is known of a service.
type link struct {
	Link
	// down is from a strike's begin until the service is ready again, or will not be.
	down bool
	// strike is the one that is under way or was last.
	strike fault.StrikeRecord
	// wrong says why it is not back; gone that its keeper has ended.
	wrong string
	gone  bool
}

func newCourse(c Config, f fault.Fault, told Told) *course {
	return &course{
		config: c, outage: *f.Spec.Outage, began: f.Applied, told: told, expires: f.Expires,
		stopped: make(chan struct{}), first: make(chan struct{}), changed: make(chan struct{}),
		links: map[string]*link{}, state: fault.OutageRun{Of: f.Spec.Outage.Total()},
	}
}

// open opens the link to a service.
func (c *course) open(name string) error {
	got, err := c.config.Dial(name)
	if err != nil {
		return fmt.Errorf("service %s: %w", name, err)
	}
	l := &link{Link: got}
	c.mu.Lock()
	c.links[name] = l
	c.mu.Unlock()
	c.readers.Go(func() {
		for n := range got.News() {
			c.hear(name, l, n)
		}
		c.lost(name, l)
	})
	return nil
}

// close ends all links, and with them what is still down.
func (c *course) close() {
	c.stop()
	c.mu.Lock()
	for _, l := range c.links {
		_ = l.Close()
	}
	c.mu.Unlock()
	c.readers.Wait()
}

func (c *course) stop() { c.stopOnce.Do(func() { close(c.stopped) }) }

// again moves the end, and opens links that have ended.
func (c *course) again(expires time.Time) error {
	c.mu.Lock()
	c.expires = expires
	var dead []string
	var errs []error
	for name, l := range c.links {
		if l.gone {
			dead = append(dead, name)
			continue
		}
		if err := l.Call(service.Call{Do: service.Until, UntilNS: until(expires)}); err != nil {
			errs = append(errs, fmt.Errorf("service %s: %w", name, err))
		}
	}
	c.mu.Unlock()
	for _, name := range dead {
		errs = append(errs, c.open(name))
	}
	return errors.Join(errs...)
}

// run goes through the timetable; strikes up to from are left out.
func (c *course) run(from time.Duration) {
	defer c.noMore()
	var due *fault.Strike
	for s := range c.outage.Strikes() {
		if s.At <= from {
			c.mu.Lock()
			c.state.Done++ // in the life before
			c.mu.Unlock()
			continue
		}
		if due != nil {
			if !c.wait(*due) {
				return
			}
			c.strike(*due, c.since() >= s.At)
		}
		due = &s
	}
	if due != nil && c.wait(*due) {
		c.strike(*due, false)
	}
}

func (c *course) since() time.Duration { return time.Since(c.began) }

// wait waits for a strike's time; false when there is to be none.
func (c *course) wait(s fault.Strike) bool {
	c.mu.Lock()
	c.state.Next = c.began.Add(s.At)
	c.mu.Unlock()
	wait := s.At - c.since()
	if wait > 0 {
		c.firstOnce.Do(func() { close(c.first) }) // it is not due yet
	}
	timer := time.NewTimer(max(0, wait))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.stopped:
		return false
	}
}

// noMore notes that the timetable is over.
func (c *course) noMore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.state.Next = true, time.Time{}
	c.overNow()
}

// strike has a service fail, unless there is no room for that; late says that the next strike
// is due as well.
func (c *course) strike(s fault.Strike, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.links[s.Service]
	record := fault.StrikeRecord{Number: s.Number, Service: s.Service, Action: c.outage.Action, Due: c.began.Add(s.At)}
	down := c.downNow()
	switch {
	case late:
		record.Skipped = "the agent stood still, and the next one is due"
	case l.gone:
		record.Skipped = "it has ended"
	case l.down:
		record.Skipped = "it is not back yet"
	case len(down) >= c.outage.Limit():
		record.Skipped = strings.Join(down, ", ") + ": not back yet"
	case !time.Now().Before(c.expires):
		record.Skipped = "the fault is over"
	}
	if record.Skipped != "" {
		c.skip(record)
		return
	}
	l.down, l.strike = true, record
	c.state.Done++
	call := service.Call{Number: s.Number, Do: string(c.outage.Action), DownNS: int64(c.outage.Down), UntilNS: until(c.expires)}
	if err := l.Call(call); err != nil {
		c.state.Done--
		l.down = false
		record.Skipped = err.Error()
		c.skip(record)
	}
}

// skip notes a strike that does not happen. The caller holds the lock.
func (c *course) skip(record fault.StrikeRecord) {
	c.state.Skipped++
	if c.state.Done == 0 && c.refused == nil {
		c.refused = fmt.Errorf("service %s: %s", record.Service, record.Skipped)
	}
	c.tell("skipped", record)
	c.firstOnce.Do(func() { close(c.first) })
}

// hear takes what the keeper of a service tells.
func (c *course) hear(name string, l *link, n service.News) {
	switch n.What {
	case service.Up, service.Ready, service.Failed:
		c.config.Changed(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.down || n.Number != l.strike.Number && n.Number != backNumber {
		return
	}
	at := fault.Instant{Time: time.Unix(0, n.UnixNS), Monotonic: n.MonotonicNS}
	s := &l.strike
	switch n.What {
	case service.Down:
		s.Down, s.PID = at, n.PID
	case service.Up:
		s.Up, s.NewPID = at, n.PID
	case service.Ready:
		s.Ready, s.NewPID, l.down, l.wrong = at, n.PID, false, ""
	case service.Failed:
		s.Error, l.down, l.wrong = n.Error, false, n.Error
		c.state.Failed++
	case service.Refused:
		l.down = false
		c.state.Done--
		s.Skipped = n.Error
		c.skip(*s)
		c.overNow()
		return
	default:
		return
	}
	c.tell(n.What, *s)
	if n.What == service.Down {
		c.firstOnce.Do(func() { close(c.first) })
	}
	c.overNow()
}

// lost notes that the keeper of a service has ended.
func (c *course) lost(name string, l *link) {
	c.config.Changed(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	l.gone = true
	if l.wrong == "" {
		l.wrong = "it has ended"
	}
	if l.down {
		l.down = false
		l.strike.Error = l.wrong
		c.state.Failed++
		c.tell(service.Failed, l.strike)
	} else {
		c.notify()
	}
	c.overNow()
}

// backNumber is of the calls that end the outages.
const backNumber = -1

// tell tells what happened. The caller holds the lock.
func (c *course) tell(kind string, s fault.StrikeRecord) {
	r := c.state
	r.Down = c.downNow()
	r.Strikes = []fault.StrikeRecord{s}
	c.told(kind, r)
	c.notify()
}

// notify wakes who waits for something to happen. The caller holds the lock.
func (c *course) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// overNow tells that nothing more is to come. The caller holds the lock.
func (c *course) overNow() {
	if !c.last || c.state.Over || len(c.downNow()) > 0 {
		return
	}
	c.state.Over = true
	r := c.state
	c.told("over", r)
	c.notify()
}

// begun waits until the first strike has happened, if it is due.
func (c *course) begun(ctx context.Context) error {
	select {
	case <-c.first:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the first outage: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// end has all services put back, and waits for that as long as ctx lasts.
func (c *course) end(ctx context.Context) error {
	c.stop()
	c.mu.Lock()
	for _, name := range c.downNow() {
		_ = c.links[name].Call(service.Call{Number: backNumber, Do: service.Back}) // one whose keeper has gone is told as lost
	}
	c.mu.Unlock()
	for {
		c.mu.Lock()
		down, changed := c.downNow(), c.changed
		c.mu.Unlock()
		if len(down) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: not back yet: %w", strings.Join(down, ", "), context.Cause(ctx))
		}
	}
}
