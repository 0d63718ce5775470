package prober

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"netemd/internal/child"
	"netemd/probe"
	"netemd/probe/load"
)

func init() { child.Register(childName, func([]string) int { return serve(os.Stdin, os.Stdout) }) }

// lastCalls is how long calls that were cut off may take to end; the contract of
// probe.Caller is 200 ms.
const lastCalls = time.Second

var (
	errStopped = errors.New("the probe was told to stop")
	errSignal  = errors.New("the probe was stopped by a signal")
)

// serve is the child's main: one order in, samples out. It stops early, with what
// it has, when its input ends or at SIGTERM or SIGINT.
func serve(in io.Reader, out io.Writer) int {
	for _, v := range os.Environ() { // pgx would take settings from there
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name)
		}
	}
	var o Order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		fmt.Fprintf(os.Stderr, "probe order: %v\n", err)
		return 2
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop(errStopped)
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		stop(errSignal)
	}()
	tune(o.Request)

	samples, last, written := make(chan probe.Sample, queued), make(chan end, 1), make(chan error, 1)
	go func() { written <- write(out, samples, last) }()
	last <- o.run(ctx, func(s probe.Sample) { samples <- s })
	if err := <-written; err != nil {
		return 1 // nobody is left to tell
	}
	return 0
}

// tune makes the process one that measures: it collects garbage seldom. When it keeps a
// schedule it has more running threads than the machine has processors, so that the
// thread of the schedule need not wait for a goroutine to give its place away, and goes
// before others, so that it measures the path and not its own wait for a processor.
func tune(r probe.Request) {
	debug.SetGCPercent(400)
	if r.Open != nil {
		runtime.GOMAXPROCS(runtime.NumCPU() + 2)
		prefer()
	}
}

// run makes the calls. It returns without those that do not end when they have to.
func (o Order) run(ctx context.Context, each func(probe.Sample)) end {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stuck := make(chan error, 1)
	c, err := o.caller(func(err error) {
		select {
		case stuck <- err:
		default: // one is enough
		}
	})
	if err != nil {
		return end{Error: err.Error(), Unsupported: errors.Is(err, errors.ErrUnsupported)}
	}
	watch := &outages{}
	if asks(o.Request.WithDefaults()) {
		watch.ask = askTCP(o.Address)
	}
	asking, enough := context.WithCancel(ctx)
	defer enough()
	done := make(chan end, 1)
	go func() {
		l, err := load.Run(ctx, c, o.Request, load.Options{OwnBudget: true, Starter: c.starter()}, func(s probe.Sample) {
			watch.ended(asking, s)
			each(s)
		})
		enough()
		e := end{Outages: watch.result(), Load: l, UDP: c.packets(), Settings: c.settings()}
		c.close()
		if err != nil {
			e.Error = err.Error()
		}
		done <- e
	}()
	select {
	case e := <-done:
		return e
	case err := <-stuck:
		return end{Error: err.Error()}
	case <-ctx.Done():
	}
	select {
	case e := <-done:
		return e
	case <-time.After(lastCalls):
		return end{Error: fmt.Sprintf("%v; calls had not ended %v later", context.Cause(ctx), lastCalls)}
	}
}
