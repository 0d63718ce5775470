package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"netemd/internal/fault"
	"netemd/internal/lab/service"
	"netemd/internal/monotonic"
)

// Link is a connection to the keeper of a service; its end puts the service back.
type Link interface {
	Call(service.Call) error
	// News is closed when the keeper has ended.
	News() <-chan service.News
	Close() error
}

// Config is what an Engine needs.
type Config struct {
	// Dial opens a link to a service by its name LAB/SERVICE; fs.ErrNotExist for one that is
	// not there or has ended.
	Dial func(name string) (Link, error)
	// Changed is called when a service was put back, or not: its process may be another one.
	Changed func(name string)
}

// Told is called for what happens, in order: kind is down, up, ready, skipped, failed or over,
// and of r's strikes there is only the one that it is about. It must not call the Engine.
type Told = func(kind string, r fault.OutageRun)

// Engine carries out outages. It needs no privilege but what Dial does, and is safe for
// concurrent use; calls about one fault must come one after the other.
type Engine struct {
	config  Config
	mu      sync.Mutex
	courses map[string]*course
}

// New returns an Engine without outages.
func New(c Config) *Engine { return &Engine{config: c, courses: map[string]*course{}} }

func (e *Engine) course(id string) *course {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.courses[id]
}

// Set begins f's outages, which it counts from f.Applied, until f.Expires; it returns when the
// first has happened, where that is due now. Of a course that goes on already it moves the end,
// and opens links again that have ended. With resume the strikes that were due before are left
// out. On an error nothing is done, or goes on as it was.
func (e *Engine) Set(ctx context.Context, f fault.Fault, resume bool, told Told) error {
	if c := e.course(f.ID); c != nil {
		return c.again(f.Expires)
	}
	c := newCourse(e.config, f, told)
	for _, name := range f.Spec.Outage.Services {
		if err := c.open(name); err != nil {
			c.close()
			return err
		}
	}
	e.mu.Lock()
	e.courses[f.ID] = c
	e.mu.Unlock()
	from := time.Duration(-1)
	if resume {
		from = time.Since(f.Applied)
	}
	go c.run(from)
	if err := c.begun(ctx); err != nil {
		return errors.Join(err, e.Clear(context.WithoutCancel(ctx), f.ID))
	}
	return nil
}

// Read is nil while the outages go on as they should. The error says which service is not
// back, or has ended, and is fs.ErrNotExist then.
func (e *Engine) Read(_ context.Context, f fault.Fault) error {
	c := e.course(f.ID)
	if c == nil {
		return fmt.Errorf("nothing is done to %s: %w", f.Spec.TargetName(), fs.ErrNotExist)
	}
	return c.trouble()
}

// Clear ends the outages of a fault, and returns when all services that can be are back. The
// error says which are not yet, where ctx has ended; the keepers go on with it. What is not
// there is no error.
func (e *Engine) Clear(ctx context.Context, id string) error {
	c := e.course(id)
	if c == nil {
		return nil
	}
	if err := c.end(ctx); err != nil {
		return err
	}
	c.close()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.courses, id)
	return nil
}

// until is a deadline on the clock of the keepers.
func until(t time.Time) int64 { return monotonic.Now() + int64(time.Until(t)) }

// downNow names the services that are down.
func (c *course) downNow() []string {
	var names []string
	for _, name := range c.outage.Services {
		if c.links[name].down {
			names = append(names, name)
		}
	}
	return names
}

// trouble says what is not as it should be.
func (c *course) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var words []string
	for _, name := range c.outage.Services {
		if l := c.links[name]; l.wrong != "" {
			words = append(words, name+": "+l.wrong)
		}
	}
	if len(words) == 0 {
		return nil
	}
	slices.Sort(words)
	return fmt.Errorf("%s: %w", strings.Join(words, "; "), errGone)
}

// errGone matches fs.ErrNotExist, in words that say more.
var errGone error = gone{}

type gone struct{}

func (gone) Error() string        { return "it is not as it was" }
func (gone) Is(target error) bool { return target == fs.ErrNotExist }
