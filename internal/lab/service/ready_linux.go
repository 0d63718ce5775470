package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is how long a service has to live at least: most mistakes end it within a
	// moment, and an address that another process has taken answers at once.
	settle = 100 * time.Millisecond
	// settled is how long it has to be waited for one that is busy.
	settled = 2 * time.Second
	// checkLimit is how long one check may take, commandLimit one command.
	checkLimit   = time.Second
	commandLimit = 5 * time.Second
	// firstPause and mostPause are between two checks, fastPause instead of that where the
	// time until a service answers is measured.
	firstPause = 5 * time.Millisecond
	mostPause  = 250 * time.Millisecond
	fastPause  = 20 * time.Millisecond
)

// ask asks until the service with that first process is ready; it ends with ctx, too.
func (k *keeper) ask(ctx context.Context, main int, began time.Time) error {
	if err := k.askChecks(ctx, mostPause); err != nil {
		return err
	}
	k.settle(ctx, main, began)
	return nil
}

// askChecks asks all that is to be asked, until each was answered.
func (k *keeper) askChecks(ctx context.Context, most time.Duration) error {
	r := k.order.Ready
	within := k.within()
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not ready after %v", within))
	defer cancel()
	for _, check := range []func(context.Context) error{
		func(ctx context.Context) error { return connectsAny(ctx, r.TCP) },
		func(ctx context.Context) error { return answersPostgres(ctx, r.TCP, r.Postgres) },
		func(ctx context.Context) error { return answers(ctx, r.HTTP) },
		func(ctx context.Context) error { return k.succeeds(ctx, r.Command) },
	} {
		var last error
		for pause := firstPause; ; pause = min(2*pause, most) {
			err := check(ctx)
			if err == nil {
				break
			}
			// What the end of the time itself cut short says nothing.
			if ctx.Err() == nil || last == nil {
				last = err
			}
			if !sleep(ctx, pause) {
				return fmt.Errorf("%w (last: %w)", context.Cause(ctx), last)
			}
		}
	}
	return nil
}

// settle waits until a service has lived for a moment.
func (k *keeper) settle(ctx context.Context, main int, began time.Time) {
	sleep(ctx, time.Until(began.Add(settle)))
	for busy(main) && time.Since(began) < settled && sleep(ctx, firstPause) {
	}
}

// busy reports whether the process is still at its start, which takes long on a machine
// that has much to do: it runs, waits for a disk, or has ended and nobody has seen it.
func busy(pid int) bool {
	s, err := readStat(pid)
	return err == nil && (s.state == 'R' || s.state == 'D' || s.state == 'Z')
}

// sleep is false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// connectsAny is nil when one of the addresses takes a connection, or there are none.
func connectsAny(ctx context.Context, addresses []netip.AddrPort) error {
	var errs []error
	for _, at := range addresses {
		c, err := (&net.Dialer{Timeout: checkLimit}).DialContext(ctx, "tcp", at.String())
		if err == nil {
			return c.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// answers is nil when the URL answers with a status of 200 to 399, or there is none.
func answers(ctx context.Context, url string) error {
	if url == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{
		// A redirection is an answer. No proxy of the environment is asked.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{DisableKeepAlives: true},
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("%s answers %s, want a status of 200 to 399", url, resp.Status)
	}
	return nil
}

// succeeds is nil when the command ends with exit status 0, or there is none.
func (k *keeper) succeeds(ctx context.Context, argv []string) error {
	if len(argv) == 0 {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		const most = 512
		_, _ = io.Copy(&said, io.LimitReader(r, most))
		_, _ = io.Copy(io.Discard, r)
	}()
	defer func() { _ = r.Close() }()
	exit := make(chan unix.WaitStatus, 1)
	pid := 0
	k.call(ctx, func() {
		if pid, err = k.spawn(argv, w); err == nil {
			k.checks[pid] = exit
		}
	})
	_ = w.Close()
	if err != nil || pid == 0 {
		return errors.Join(err, context.Cause(ctx))
	}
	limit := time.NewTimer(commandLimit)
	defer limit.Stop()
	select {
	case status := <-exit:
		if status.ExitStatus() == 0 {
			return nil
		}
		select {
		case <-read:
		case <-time.After(checkLimit): // it left somebody behind that has the pipe
			return fmt.Errorf("%s: %s", argv[0], describe(status))
		}
		return fmt.Errorf("%s: %s: %s", argv[0], describe(status), bytes.TrimSpace(said.Bytes()))
	case <-limit.C:
		err = fmt.Errorf("%s: not done after %v", argv[0], commandLimit)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	// Its whole group: it has not been taken in, so the number is still its own.
	k.call(context.WithoutCancel(ctx), func() {
		if _, ok := k.checks[pid]; ok {
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	})
	return err
}

// call runs f on the keeper's own thread and waits for it, unless ctx ends or the
// keeper does before f begins.
func (k *keeper) call(ctx context.Context, f func()) {
	done := make(chan struct{})
	select {
	case k.calls <- func() { defer close(done); f() }:
		<-done
	case <-ctx.Done():
	case <-k.over:
	}
}
