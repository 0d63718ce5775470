package stream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/target"
)

// unstuckTime is how long an API that hung may take to disable a proxy, and then to answer
// again.
const unstuckTime = time.Second

// sweepTime bounds a sweep of one API.
const sweepTime = 30 * time.Second

// Clear takes away what the agent made on p, and enables p again where a Down of the agent's
// disabled it. What is gone, be it the proxy or the whole Toxiproxy, needs nothing.
//
// A StuckError means that the Toxiproxy did not answer in time, as where a toxic is taken out
// of a connection whose client reads nothing any more. The proxy is disabled then, which cuts
// its connections. Where that brought the API back the toxics are gone, the proxy is as it
// was, and the error says Recovered; else the proxy stays disabled, so that nobody takes the
// old fault for none.
func (r *Remote) Clear(ctx context.Context, p target.Toxiproxy) error {
	switch k := r.knows(p); {
	case k.stuck != nil:
		return r.cleared(ctx, p, r.clearStuck(ctx, p, k.stuck))
	case !k.touched:
		// Nothing of this life's is there, and so there is nothing to bring a proxy of somebody
		// else's back from, should its Toxiproxy hang.
		if _, err := r.takeAway(ctx, p, r.Mark(p), false); err != nil {
			return fmt.Errorf("stream clear: nothing of netemd's was made there, and nothing is changed: %w", err)
		}
		return nil
	}
	return r.cleared(ctx, p, r.clear(ctx, p, r.Mark(p), r.knows(p).disabled))
}

// clearStuck tries a Toxiproxy again that hung, and was disabled for that: nothing more can
// be done than to see whether it answers by now.
func (r *Remote) clearStuck(ctx context.Context, p target.Toxiproxy, stuck *StuckError) error {
	ctx, cancel := context.WithTimeoutCause(ctx, unstuckTime, stuck)
	defer cancel()
	_, err := r.takeAway(ctx, p, r.Mark(p), r.knows(p).disabled)
	if errors.Is(err, ErrStuck) {
		return stuck
	}
	return err
}

// cleared notes what a clear of this life's came to.
func (r *Remote) cleared(ctx context.Context, p target.Toxiproxy, err error) error {
	stuck, _ := errors.AsType[*StuckError](err)
	if err == nil || stuck != nil && stuck.Recovered {
		r.note(p, func(k *known) { *k = known{} })
		if r.Watch != nil {
			err = errors.Join(err, r.Watch(ctx, p, time.Time{}, false))
		}
	}
	if err != nil {
		return fmt.Errorf("stream clear: %w", err)
	}
	return nil
}

// clear takes away what bears mark; enable says that the proxy is to be enabled, too.
func (r *Remote) clear(ctx context.Context, p target.Toxiproxy, mark string, enable bool) error {
	was, err := r.takeAway(ctx, p, mark, enable)
	if stuck, ok := errors.AsType[*StuckError](err); ok {
		return r.unstick(ctx, p, mark, was || enable, stuck)
	}
	return err
}

// takeAway is clear without a recovery. It returns whether the proxy was enabled.
func (r *Remote) takeAway(ctx context.Context, p target.Toxiproxy, mark string, enable bool) (was bool, err error) {
	now, err := r.find(ctx, p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		// It answers nothing at all: what is disabled in a recovery was enabled, as far as
		// anybody knows.
		return true, err
	case p.Name == "":
		err := r.control(p).call(ctx, "DELETE", r.path(p), nil, nil)
		failpoint.At("toxiproxy.deleted")
		if answered(err, http.StatusNotFound) {
			return false, nil
		}
		return now.Enabled, err
	}
	for _, t := range ours(now, mark) {
		if err := r.remove(ctx, p, t.Name); err != nil {
			return now.Enabled, err
		}
	}
	if enable && !now.Enabled {
		return now.Enabled, r.enable(ctx, p, true)
	}
	return now.Enabled, nil
}

// unstick disables the proxy behind an API that hangs, which ends its connections, and tries
// again if the API answers then; enable says that the proxy is to be enabled after it. It has
// hung for a whole limit already, so it gets little time for that.
func (r *Remote) unstick(ctx context.Context, p target.Toxiproxy, mark string, enable bool, stuck *StuckError) error {
	// The caller's own limit may be over by now.
	quick := func() (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(context.WithoutCancel(ctx), unstuckTime, stuck)
	}
	told := "was disabled"
	disabling, cancel := quick()
	defer cancel()
	if err := r.enable(disabling, p, false); errors.Is(err, ErrStuck) {
		// Toxiproxy does it, and hangs when it would answer with the proxy's toxics.
		told = "was told to be disabled, without an answer"
	} else if err != nil {
		stuck.How, stuck.Recovery = "disabling the proxy", err
		return stuck
	}
	again, cancel := quick()
	defer cancel()
	if _, err := r.takeAway(again, p, mark, enable); err != nil {
		stuck.How = "the proxy " + told + ", which cuts its connections and refuses new ones; its Toxiproxy has to be restarted"
		r.note(p, func(k *known) { k.stuck, k.disabled = stuck, enable && p.Name != "" })
		return stuck
	}
	stuck.How, stuck.Recovered = "the proxy was disabled for a moment, which cut its connections, and is without the toxics now", true
	return stuck
}

// Sweep takes away everything of the agent's at the API of at, for after its death: toxics and
// proxies that bear the Tag, in every proxy there. Proxies in disabled, by their names, are
// enabled again. It returns what it did, in words. A Toxiproxy that is gone needs nothing.
//
// It takes no longer than sweepTime; what is left then is told as an error.
func (r *Remote) Sweep(ctx context.Context, at target.Toxiproxy, disabled []string) (done []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sweepTime, fmt.Errorf("the Toxiproxy at %s took longer than %v", at.API, sweepTime))
	defer cancel()
	api := at.API
	all, err := r.proxies(ctx, at)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stream sweep: %w", err)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := target.Toxiproxy{API: api, Name: name, Loopback: at.Loopback}
		at := "proxy " + name + " of the Toxiproxy at " + api
		switch enable := slices.Contains(disabled, name) && !all[name].Enabled; {
		case strings.HasPrefix(name, r.Tag+"-"):
			if err := r.control(p).call(ctx, "DELETE", r.path(p), nil, nil); err != nil {
				errs = append(errs, err)
				continue
			}
			done = append(done, at)
		case enable || len(ours(all[name], r.Tag)) > 0:
			err := r.clear(ctx, p, r.Tag, enable)
			if stuck, ok := errors.AsType[*StuckError](err); err != nil && (!ok || !stuck.Recovered) {
				errs = append(errs, err)
				continue
			}
			for _, t := range ours(all[name], r.Tag) {
				done = append(done, "toxic "+t.Name+" on "+at)
			}
			if enable {
				done = append(done, "the disabling of "+at)
			}
		}
	}
	return done, errors.Join(errs...)
}
