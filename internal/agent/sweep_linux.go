package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf"
	"netemd/internal/engine/netem"
	"netemd/internal/fault"
	"netemd/internal/journal"
	"netemd/internal/offload"
	"netemd/namespaces"
)

// clearLeftovers takes away the faults of an agent that was killed: the wires of
// adopted labs go back to neutral, what its programs left there and on others' devices
// is removed, and offload settings are restored. Its proxies cleared themselves when
// it died.
//
// What the journal of the last life says was open is settled then: it said where to look,
// also in a namespace that has lost its name.
func (a *Agent) clearLeftovers(ctx context.Context, last journal.Last) error {
	if a.cfg.Fresh {
		return nil
	}
	targets, err := a.labs.Targets(ctx)
	if err != nil {
		return err
	}
	var errs []error
	if e := a.engines[fault.Netem]; e != nil {
		for _, t := range targets {
			errs = append(errs, e.Clear(ctx, t.To), e.Clear(ctx, t.From))
		}
	}
	// Neither another's namespace nor one setting that does not come back keeps us from
	// starting, or the rest from being cleared; what is recorded is tried again.
	removed, err := sweep(ctx, a.cfg.StateDir, a.offloads, last.Open, true)
	ofProxies, sweeping := sweepToxiproxies(ctx, a.cfg, last.Open)
	removed, err = append(removed, ofProxies...), errors.Join(err, sweeping)
	for _, f := range openInWords(last.Open) {
		a.cfg.Log.Warn("an earlier agent was killed", "left", f)
	}
	for _, r := range removed {
		a.cfg.Log.Info("faults of an earlier agent", "removed", r)
	}
	if err != nil {
		a.cfg.Log.Error("faults of an earlier agent", "err", err)
	}
	a.recordRemoved("removed", slices.Concat(openInWords(last.Open), removed), err)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("faults of an earlier agent: %w", err)
	}
	if err != nil {
		return nil // the journal keeps what is open, for the next to look again
	}
	return settle(ctx, a.journal, last.Open)
}

// sweep removes what dead agents with this state folder left on devices that are not
// netemd's own, in the agent's namespace, in all that have a name and in those of open
// faults, and restores offload settings. It returns what it did in words, a line for each.
// Where the open faults are all that there can be, it need not look everywhere.
func sweep(ctx context.Context, stateDir string, offloads *offload.Keeper, open []journal.Entry, everywhere bool) (done []string, err error) {
	stays := takeBack()
	names, before, giveBack := nameAgain(open)
	defer func() {
		for i := range done {
			done[i] = before.Replace(done[i])
		}
		err = errors.Join(err, giveBack(), stays)
	}()
	names = append(names, "")
	entries, err := namespaces.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Stale && !slices.Contains(names, e.Name) && (everywhere || isIn(e.Name, open)) {
			names = append(names, e.Name)
		}
	}
	done, err = sweepAll(ctx, names, stateDir)
	back, gone, repaired := offloads.Repair(ctx)
	for _, o := range back {
		done = append(done, fmt.Sprintf("what kept offload off at %s: %s", at(o.Namespace, o.Device), fault.FeatureNames(o.Off)))
	}
	for _, o := range gone {
		done = append(done, fmt.Sprintf("the record of the offload of %s, which is gone", at(o.Namespace, o.Device)))
	}
	return done, errors.Join(err, repaired)
}

// isIn reports whether a place of an open fault is in the namespace of that name.
func isIn(namespace string, open []journal.Entry) bool {
	return slices.ContainsFunc(open, func(e journal.Entry) bool {
		return slices.ContainsFunc(e.Places, func(p journal.Place) bool { return p.Namespace == namespace })
	})
}

func at(namespace, device string) string {
	if namespace == "" {
		return device
	}
	return device + " in netns " + namespace
}

// sweepers is how many namespaces are looked into at a time. What costs is entering them,
// on which the kernel's own locks allow no more.
const sweepers = 4

// sweepAll has both engines look into each namespace, once, and returns what they removed in
// the order of the names.
func sweepAll(ctx context.Context, names []string, stateDir string) (done []string, err error) {
	names = apart(names)
	removed, errs := make([][]string, len(names)), make([]error, len(names))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(sweepers, len(names)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(names); i = int(next.Add(1)) - 1 {
				removed[i], errs[i] = sweepNamespace(ctx, names[i], stateDir)
			}
		})
	}
	wg.Wait()
	return slices.Concat(removed...), errors.Join(errs...)
}

// sweepNamespace has both engines look into a namespace. One that does not exist, or that
// somebody is just making or deleting, is no error: there is nothing of ours in it.
func sweepNamespace(ctx context.Context, name, stateDir string) (removed []string, err error) {
	ns, err := namespaces.Share(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, namespaces.ErrStale) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	defer ns.Release()
	filters, ofFilters := ebpf.Sweep(ctx, ns)
	devices, ofDevices := netem.Sweep(ctx, ns, stateDir)
	if err = errors.Join(ofFilters, ofDevices); err != nil {
		err = fmt.Errorf("in namespace %q: %w", name, err)
	}
	return append(filters, devices...), err
}

// apart leaves out what is another name of a namespace that is among the names already: two
// that sweep it at the same time would find each other's work.
func apart(names []string) (different []string) {
	type file struct{ dev, inode uint64 }
	seen := map[file]bool{}
	for _, name := range names {
		var st unix.Stat_t
		path, err := namespaces.Path(name)
		if err == nil && unix.Stat(path, &st) == nil {
			at := file{st.Dev, st.Ino}
			if seen[at] {
				continue
			}
			seen[at] = true
		}
		different = append(different, name)
	}
	return different
}
