package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/lab/service"
	"netemd/namespaces"
)

// homePrefix begins the name of a service's data folder outside of the state folder.
const homePrefix = "netemd-lab-"

// pollInterval is the pause between two questions whether a service is ready.
const pollInterval = 5 * time.Millisecond

// postgresLimit bounds a PostgreSQL's start: initdb and the first start take 1.5 s on an
// idle machine, and twenty times that on an emulated one.
const postgresLimit = 3 * time.Minute

// atOnce is how many services of a lab are started at the same time: their programs
// share the machine's processors.
const atOnce = 8

// services are the states of a lab's services.
type services struct {
	mu sync.Mutex
	// saving is held while the record is changed and written by services that start at
	// the same time.
	saving sync.Mutex
	states map[string]service.State
	// unwatch ends the watch over them.
	unwatch context.CancelFunc
}

func (s *services) set(name string, state service.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil {
		s.states = map[string]service.State{}
	}
	s.states[name] = state
}

func (s *services) get(name string) service.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[name]
}

// startServices starts all services, each when those that it needs are ready. The error
// is of the first that fails, which ends the attempts of the others.
func (m *Manager) startServices(ctx context.Context, r *running, progress func(string)) error {
	d := r.record.Definition
	for _, n := range d.Nodes {
		if len(n.Services) == 0 {
			continue
		}
		if err := openPorts(ctx, d.Namespace(n.Name), n); err != nil {
			return err
		}
		address, _ := r.layout.address(n.Name)
		for _, s := range n.Services {
			dir := m.serviceDir(d.Name, s.Name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			log := s.Log
			if log == "" {
				log = service.LogPath(dir, s.Name)
			}
			rec := serviceRecord{Node: n.Name, Name: s.Name, Kind: s.kind(), Folder: dir, Home: dir, Log: log}
			if s.Port != 0 {
				rec.Address = netip.AddrPortFrom(address, s.Port)
			}
			r.record.Services = append(r.record.Services, rec)
		}
	}
	if len(r.record.Services) == 0 {
		return nil
	}
	// Once for all of them: what a crash leaves is found by the namespaces and the
	// keepers' own files.
	if err := m.save(r.record); err != nil {
		return err
	}
	failpoint.At("lab.service.listed")
	var mu sync.Mutex
	tell := func(step string) {
		mu.Lock()
		defer mu.Unlock()
		progress(step)
	}
	err := d.eachService(ctx, func(ctx context.Context, s ServiceDefinition) error {
		return m.startService(ctx, r, r.record.service(s.Name), s, tell)
	})
	if err == nil {
		m.watchServices(r)
	}
	return err
}

// service returns the record of a service that is in it.
func (r *record) service(name string) *serviceRecord {
	i := slices.IndexFunc(r.Services, func(s serviceRecord) bool { return s.Name == name })
	return &r.Services[i]
}

// eachService calls do for every service, at the same time where they do not need one
// another. After an error the others are stopped by their ctx, and waited for.
func (d Definition) eachService(ctx context.Context, do func(context.Context, ServiceDefinition) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := map[string]chan struct{}{}
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			done[s.Name] = make(chan struct{})
		}
	}
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		first error
		turns = make(chan struct{}, atOnce)
	)
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			all.Go(func() {
				for _, need := range d.needs(s) {
					select {
					case <-done[need]:
					case <-ctx.Done():
						return
					}
				}
				select {
				case turns <- struct{}{}:
					defer func() { <-turns }()
				case <-ctx.Done():
					return
				}
				err := do(ctx, s)
				if err == nil {
					close(done[s.Name])
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = fmt.Errorf("service %s: %w", s.Name, err)
					cancel(fmt.Errorf("service %s did not start", s.Name))
				}
			})
		}
	}
	all.Wait()
	if first == nil {
		first = context.Cause(ctx)
	}
	return first
}

// openPorts lets every user listen on every port of the node: its services need no
// privilege for a port below 1024, and there is nobody else to protect it from.
func openPorts(ctx context.Context, namespace string, n Node) error {
	const name, file = "net.ipv4.ip_unprivileged_port_start", "/proc/sys/net/ipv4/ip_unprivileged_port_start"
	if slices.ContainsFunc(n.Sysctls, func(s Sysctl) bool { return s.Name == name }) {
		return nil
	}
	return namespaces.Do(ctx, namespace, func() error { return os.WriteFile(file, []byte("0"), 0) })
}

// startService starts a service of the node and waits until it answers.
func (m *Manager) startService(ctx context.Context, r *running, rec *serviceRecord, s ServiceDefinition, progress func(string)) error {
	if rec.Kind == KindPostgres {
		return m.startPostgres(ctx, r, rec, s, progress)
	}
	on := ""
	if rec.Address.IsValid() {
		on = " on " + rec.Address.String()
	}
	progress(rec.Name + ": starting" + on)
	order, err := m.order(r, rec, s)
	if err != nil {
		return err
	}
	if err := m.run(ctx, r, rec, order); err != nil {
		return err
	}
	if s.forwards() {
		return waitFor(ctx, rec, func() error { return answersUnix(proxySocket(rec.Home)) })
	}
	return nil
}

// run starts an order's keeper in the service's node and waits until the service is
// ready.
func (m *Manager) run(ctx context.Context, r *running, rec *serviceRecord, o service.Order) error {
	started := func(p service.Process) error {
		failpoint.At("lab.service.started")
		r.services.saving.Lock()
		defer r.services.saving.Unlock()
		rec.Process, rec.StopLimit = p, o.StopLimit()
		return nil
	}
	got, err := service.Start(ctx, r.record.Definition.Namespace(rec.Node), o, started)
	if err != nil {
		return err
	}
	if got.Lifeline != nil {
		m.mu.Lock()
		r.lifelines = append(r.lifelines, got.Lifeline)
		m.mu.Unlock()
	}
	r.services.set(rec.Name, got.State)
	failpoint.At("lab.service.ready")
	return nil
}

// waitFor asks until the service is ready, it has ended or ctx ends.
func waitFor(ctx context.Context, rec *serviceRecord, ask func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)%s", context.Cause(ctx), err, rec.logTail())
		case <-tick.C:
			if !rec.Process.Alive() {
				return fmt.Errorf("ended before it was ready (last: %w)%s", err, rec.logTail())
			}
		}
	}
}

// logTail returns the last lines of its log for an error message. One that is not in the
// state folder is not read with the agent's rights.
func (s *serviceRecord) logTail() string {
	if s.Log != service.LogPath(s.Folder, s.Name) {
		return ""
	}
	return service.Order{Name: s.Name, Folder: s.Folder}.LogTail()
}

// adoptServices checks that an earlier process's services are there and takes them over.
func (m *Manager) adoptServices(ctx context.Context, r *running) error {
	err := r.record.Definition.eachService(ctx, func(ctx context.Context, s ServiceDefinition) error {
		i := slices.IndexFunc(r.record.Services, func(rec serviceRecord) bool { return rec.Name == s.Name })
		if i < 0 {
			return errors.New("is not in the lab's record")
		}
		return m.adoptService(ctx, r, &r.record.Services[i], s)
	})
	if err == nil {
		m.watchServices(r)
	}
	return err
}

// adoptService takes a service over. A proxy is replaced: its lifeline ended with the
// earlier process. A command that has ended by itself is no less of the lab than it was
// in that process; a kind of netemd's own has to be there.
func (m *Manager) adoptService(ctx context.Context, r *running, rec *serviceRecord, s ServiceDefinition) error {
	if s.forwards() {
		if err := rec.stop(); err != nil {
			return err
		}
		return m.startService(ctx, r, rec, s, func(string) {})
	}
	state, err := service.ReadState(rec.Folder, rec.Name)
	if err == nil {
		state, err = comeBack(ctx, rec, state)
	}
	if err != nil {
		return err
	}
	r.services.set(rec.Name, state)
	switch alive := rec.Process.Alive(); {
	case alive && rec.Kind == KindPostgres:
		ctx, cancel := context.WithTimeoutCause(ctx, postgresLimit, fmt.Errorf("no answer for %v", postgresLimit))
		defer cancel()
		ns := r.record.Definition.Namespace(rec.Node)
		return waitFor(ctx, rec, func() error { return askPostgres(ctx, ns, rec.Address) })
	case alive:
		return nil
	case rec.Kind == KindCommand && state.Ended != nil:
		return nil
	case state.Ended == nil:
		return fmt.Errorf("its keeper (process %d) has ended", rec.Process.PID)
	}
	return fmt.Errorf("process %d has ended: %s", state.Main.PID, state.Status)
}

// watchServices notes and logs the end of each service that nobody asked for.
func (m *Manager) watchServices(r *running) {
	ctx, cancel := context.WithCancel(context.Background())
	r.services.mu.Lock()
	r.services.unwatch = cancel
	r.services.mu.Unlock()
	lab := r.record.Definition.Name
	for _, rec := range r.record.Services {
		if r.services.get(rec.Name).Ended != nil {
			continue
		}
		go func() {
			if err := rec.Process.Wait(ctx); err != nil {
				if ctx.Err() == nil {
					m.cfg.Log.Warn("a service is not watched", "lab", lab, "service", rec.Name, "error", err)
				}
				return
			}
			state, err := service.ReadState(rec.Folder, rec.Name)
			if state.Ended == nil {
				now := time.Now().UTC()
				state.Ended, state.Status = &now, "its keeper was killed"
			}
			if ctx.Err() != nil || errors.Is(err, fs.ErrNotExist) {
				return // it was taken down
			}
			r.services.set(rec.Name, state)
			r.news.tell()
			m.cfg.Log.Warn("a service has ended by itself", "lab", lab, "node", rec.Node, "service", rec.Name, "status", state.Status, "log", rec.Log)
		}()
	}
}

// end ends the watch, before the services are stopped.
func (s *services) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unwatch != nil {
		s.unwatch()
	}
}

// serviceInfo describes a service as it is known.
func (r *running) serviceInfo(s serviceRecord) ServiceInfo {
	state := r.services.get(s.Name)
	info := ServiceInfo{Name: s.Name, Kind: s.Kind, PID: state.Main.PID, Address: s.Address, Log: s.Log}
	if state.Ended != nil {
		info.Ended, info.Status = *state.Ended, state.Status
	}
	return info
}

// stopServices ends all services, at the same time.
func (m *Manager) stopServices(r *running) error {
	r.services.end()
	errs := make([]error, len(r.record.Services))
	var all sync.WaitGroup
	for i, s := range r.record.Services {
		all.Go(func() {
			if err := s.stop(); err != nil {
				errs[i] = fmt.Errorf("service %s: %w", s.Name, err)
			}
			failpoint.At("lab.down.service")
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// stop ends the service by its keeper. The keeper of a lab that was never complete is
// in no record, but in the file that it wrote.
func (s serviceRecord) stop() error {
	if s.Process.PID != 0 && s.StopLimit == 0 {
		return s.Process.Stop(oldSteps(s.Kind)...)
	}
	if s.Process.PID == 0 {
		state, err := service.ReadState(s.Folder, s.Name)
		if err != nil {
			return nil // nothing was started, or only the namespace tells
		}
		s.Process = state.Keeper
	}
	return s.Process.StopKeeper(max(s.StopLimit, defaultStopLimit))
}

// defaultStopLimit is for a service of which the record does not say how long it takes:
// as long as a PostgreSQL.
var defaultStopLimit = service.Order{Stop: postgresStop}.StopLimit()
