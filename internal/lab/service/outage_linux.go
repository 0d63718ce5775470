package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/monotonic"
)

// phase is how far an outage is.
type phase int

const (
	ending   phase = iota // its processes are being ended
	away                  // they have ended, or are stopped
	starting              // it runs again, and is asked whether it is ready
)

// retryPause is between two starts of a service that ends before it is ready: its port may be
// taken for a moment still.
const retryPause = 500 * time.Millisecond

// outage is what is done to the service now. Like all of the keeper it is used on the keeper's
// thread alone.
type outage struct {
	by     *caller
	number int
	what   string
	phase  phase
	down   time.Duration
	// back is when the service is to be put back, zero: when somebody says so. began is when it
	// was put back first.
	back, began time.Time
	// toTell is that a kill has happened, once nothing lives any more.
	toTell *News
	// frozen are the processes that were stopped.
	frozen []Process
	// unask ends the question whether it is ready; asked is its turn.
	unask context.CancelFunc
	asked int
}

// obey does what a caller asks for.
func (k *keeper) obey(by *caller, c Call) {
	by.until = c.UntilNS
	defer k.setWake()
	switch {
	case c.Do == Until:
	case c.Do == Back && (k.dying || k.gone && k.outage == nil):
		k.refuse(by, c, "it has ended")
	case c.Do == Back && k.outage == nil:
		by.tell(k.news(c.Number, Ready))
	case c.Do == Back:
		// Whoever asks for it: an agent that takes over has another connection.
		k.outage.by, k.outage.number = by, c.Number
		k.putBack()
	case c.Do != Kill && c.Do != Stop && c.Do != Restart:
		k.refuse(by, c, fmt.Sprintf("cannot %q", c.Do))
	case k.dying || k.gone || !k.state.Ready:
		k.refuse(by, c, "it does not run")
	case k.outage != nil:
		k.refuse(by, c, "it is down already")
	case c.UntilNS != 0 && monotonic.Now() >= c.UntilNS:
		k.refuse(by, c, "the deadline is over")
	default:
		k.strike(by, c)
	}
}

func (k *keeper) refuse(by *caller, c Call, why string) {
	n := k.news(c.Number, Refused)
	n.Error = why
	by.tell(n)
}

// strike begins an outage.
func (k *keeper) strike(by *caller, c Call) {
	o := &outage{by: by, number: c.Number, what: c.Do, down: time.Duration(c.DownNS)}
	k.outage = o
	k.state.Outage = o.what
	k.remember() // before anything is done: who adopts the service after a crash must know
	down := k.news(c.Number, Down)
	if o.down > 0 && o.what != Restart {
		o.back = time.Now().Add(o.down)
	}
	switch o.what {
	case Kill:
		k.log.Say("%s: killed", k.order.Name)
		o.toTell = &down
		k.steps = nil
		k.step()
		return
	case Restart:
		k.log.Say("%s: stopped, to be started again", k.order.Name)
		k.steps = k.order.steps()
		k.step()
	case Stop:
		o.phase = away
		all, err := descendants(os.Getpid())
		if err == nil {
			all = slices.DeleteFunc(all, func(p Process) bool { return !p.runs() }) // stopped by somebody else
			o.frozen, err = freeze(all)
		}
		if err != nil {
			k.thaw()
			k.outage, k.state.Outage = nil, ""
			k.remember()
			k.refuse(by, c, err.Error())
			return
		}
	}
	by.tell(down)
}

// isDown reports that no process is no end of the service.
func (k *keeper) isDown() bool { return k.outage != nil && !k.dying }

// goOn looks at an outage after processes were taken in.
func (k *keeper) goOn() {
	o := k.outage
	if o == nil || k.dying || !k.gone {
		return
	}
	k.next, k.steps = nil, nil // nothing is left that they could hit but what is started next
	switch {
	case o.phase == ending:
		o.phase = away
		if o.toTell != nil {
			o.by.tell(*o.toTell)
			o.toTell = nil
		}
		if o.what == Restart && !o.by.left {
			o.back = time.Now().Add(o.down)
		}
		k.setWake()
		k.due()
	case o.what == Stop: // somebody killed it
		k.giveUp(fmt.Errorf("it has ended while it was stopped: %s", k.state.Status))
	case o.phase == starting:
		k.startFailed(errors.New(k.state.Status))
	}
}

// due puts the service back when its time has come.
func (k *keeper) due() {
	o := k.outage
	if o == nil || k.dying {
		return
	}
	now := time.Now()
	over := o.by.left || o.by.until != 0 && monotonic.Now() >= o.by.until
	if over || !o.back.IsZero() && !now.Before(o.back) {
		k.putBack()
	}
	k.setWake()
}

// putBack starts the service again, or lets it go on, when that can be done now; else as soon
// as it can.
func (k *keeper) putBack() {
	o := k.outage
	o.back = time.Now()
	if o.what == Restart {
		o.down = 0
	}
	if o.phase != away {
		return
	}
	if o.began.IsZero() {
		o.began = time.Now()
	}
	if o.what == Stop {
		k.thaw()
	} else if err := k.start(); err != nil {
		k.startFailed(err)
		return
	}
	o.phase = starting
	up := k.news(o.number, Up)
	k.remember()
	o.by.tell(up)
	k.askAgain()
}

// thaw lets the stopped processes go on.
func (k *keeper) thaw() {
	for _, p := range k.outage.frozen {
		if fd, ok, _ := p.open(); ok {
			_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
			_ = unix.Close(fd)
		}
	}
	k.outage.frozen = nil
}

// askAgain asks whether the service is ready again.
func (k *keeper) askAgain() {
	o := k.outage
	ctx, cancel := context.WithCancel(context.Background())
	o.unask = cancel
	o.asked++
	turn, main, began := o.asked, k.main, time.Now()
	go func() {
		err := k.askAfter(ctx, main, began)
		now := k.instant(Ready)
		k.call(ctx, func() {
			if k.outage == o && o.asked == turn {
				k.answered(now, err)
			}
		})
	}()
}

// answered takes the answer to that.
func (k *keeper) answered(at News, err error) {
	k.reap()
	o := k.outage
	if k.dying || o.phase != starting || k.gone {
		return // goOn is next
	}
	o.unask()
	k.outage, k.state.Outage = nil, ""
	k.remember()
	at.Number, at.PID = o.number, k.main
	if err != nil {
		at.What, at.Error = Failed, err.Error()
	}
	o.by.tell(at)
}

// startFailed tries again after a moment, until the time to become ready is over.
func (k *keeper) startFailed(err error) {
	o := k.outage
	if o.unask != nil {
		o.unask()
		o.unask = nil
	}
	o.asked++ // an answer that is under way is of the one before
	if time.Since(o.began) > k.within() {
		k.giveUp(fmt.Errorf("it does not start again: %w", err))
		return
	}
	o.phase, o.back = away, time.Now().Add(retryPause)
	k.setWake()
}

// within is how long the service may take to become ready.
func (k *keeper) within() time.Duration {
	if k.order.Ready.Within > 0 {
		return k.order.Ready.Within
	}
	return DefaultReadyTimeout
}

// giveUp ends an outage after which the service is not there any more, and with it the
// service.
func (k *keeper) giveUp(err error) {
	k.abandon(err)
	if k.state.Status == "" {
		k.state.Status = err.Error()
	}
	k.end()
}

// abandon ends an outage of which nothing more is to come.
func (k *keeper) abandon(err error) {
	o := k.outage
	if o == nil {
		return
	}
	if o.unask != nil {
		o.unask()
	}
	k.thaw()
	k.outage, k.state.Outage = nil, ""
	n := k.news(o.number, Failed)
	n.Error = err.Error()
	o.by.tell(n)
}

// mainGone takes the end of the service's first process in an outage, and reports that it is
// part of that.
func (k *keeper) mainGone(status unix.WaitStatus) bool {
	o := k.outage
	if o == nil || k.dying {
		return false
	}
	switch {
	case o.phase == starting && status.ExitStatus() != 0:
		k.log.Say("%s: %s, before it was ready again", k.order.Name, k.state.Status)
		k.steps = nil
		k.step() // what it left behind; goOn comes when that has ended
	case o.phase == away: // stopped, and killed by somebody
		k.steps = nil
		k.step()
	}
	return true
}

// setWake has due called when something is due.
func (k *keeper) setWake() {
	k.wake = nil
	o := k.outage
	if o == nil || o.phase != away && o.by.until == 0 {
		return
	}
	wait := time.Duration(-1)
	sooner := func(d time.Duration) {
		if d = max(0, d); wait < 0 || d < wait {
			wait = d
		}
	}
	if o.phase == away && !o.back.IsZero() {
		sooner(time.Until(o.back))
	}
	if o.by.until != 0 && o.back.IsZero() || o.by.until != 0 && o.phase == away {
		sooner(time.Duration(o.by.until - monotonic.Now()))
	}
	if wait >= 0 {
		k.wake = time.After(wait)
	}
}

// instant is something that happens now.
func (k *keeper) instant(what string) News {
	return News{What: what, MonotonicNS: monotonic.Now(), UnixNS: time.Now().UnixNano()}
}

func (k *keeper) news(number int, what string) News {
	n := k.instant(what)
	n.Number, n.PID = number, k.main
	return n
}

// askAfter is ask for a service that was ready before: it is when it answers, or, where it is
// asked nothing, when it still lives after a moment.
func (k *keeper) askAfter(ctx context.Context, main int, began time.Time) error {
	if err := k.askChecks(ctx, fastPause); err != nil {
		return err
	}
	if r := k.order.Ready; len(r.TCP) == 0 && r.HTTP == "" && len(r.Command) == 0 && k.order.Ready.Postgres == "" {
		k.settle(ctx, main, began)
	}
	return nil
}
