package prober

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"netemd/internal/child"
	"netemd/probe"
)

func init() { child.Register(childName, func([]string) int { return serve(os.Stdin, os.Stdout) }) }

// queued is how many samples may wait to be written, so that a busy parent does
// not hold up the next call.
const queued = 4096

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

	lines := make(chan message, queued)
	written := make(chan error, 1)
	go func() { written <- write(out, lines) }()
	caller, err := o.caller()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer closeCaller(caller)
	_, err = probe.Run(ctx, caller, o.Request, func(done, count int, s probe.Sample) {
		lines <- message{Done: done, Count: count, Sample: &s}
	})
	end := message{End: true}
	if err != nil {
		end.Error = err.Error()
	}
	lines <- end
	close(lines)
	if err := <-written; err != nil {
		return 1 // nobody is left to tell
	}
	return 0
}

// closeCaller lets a caller that keeps connections part from its servers.
func closeCaller(c probe.Caller) {
	if k, ok := c.(io.Closer); ok {
		_ = k.Close() // the samples are taken: how the goodbye went changes nothing
	}
}

// write encodes messages and flushes whenever none is waiting. After an error it
// goes on taking them, so that nobody blocks.
func write(out io.Writer, lines <-chan message) error {
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	var first error
	for m := range lines {
		if first != nil {
			continue
		}
		first = enc.Encode(m)
		if first == nil && len(lines) == 0 {
			first = w.Flush()
		}
	}
	if first != nil {
		return first
	}
	return w.Flush()
}
