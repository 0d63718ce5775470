package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"netemd/internal/agent"
)

// ready tells systemd that the agent answers, and beats its watchdog from then on, where
// the unit has one, at half the time that it waits. A beat is sent only when the agent is
// alive (agent.Alive says what that is): one that hangs is to be killed, so that its next
// start cleans up. The beats end with ctx, as a stop begins: systemd waits for none then.
//
// It is never told of a reload, since there is none: certificates are read again without a
// word, and the rest of the configuration at a start.
func ready(ctx context.Context, a *agent.Agent, log *slog.Logger) {
	notify(daemon.SdNotifyReady, log)
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's watchdog", "err", err)
	}
	if err != nil || every == 0 {
		return
	}
	go beat(ctx, every/2, a.Alive, func() { notify(daemon.SdNotifyWatchdog, log) }, log)
}

// beat calls alive again and again until ctx ends, and sends a beat each time that it had
// nothing to say.
func beat(ctx context.Context, every time.Duration, alive func(context.Context) error, send func(), log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		look, cancel := context.WithTimeoutCause(ctx, every, errors.New("it took too long"))
		err := alive(look)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.Error("no beat for systemd's watchdog", "err", err)
		default:
			send()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// notify tells systemd a state; without systemd it does nothing.
func notify(state string, log *slog.Logger) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd could not be told", "state", state, "err", err)
	}
}
