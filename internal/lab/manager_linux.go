package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// Config is what a Manager needs.
type Config struct {
	// StateDir is the agent's state folder. Labs are kept below its folder "labs" and
	// belong to it: a manager never touches a namespace of another folder's.
	StateDir string
	// NewDevice, when set, is called for the egress of each device of a wire, when the
	// lab is made and when it is adopted, before anything passes in the first case. It
	// must be idempotent; its error fails the lab.
	NewDevice func(context.Context, target.Place) error
	// Engine, when set, carries base impairments: when the lab is made and when it is
	// adopted. A lab that has one is refused without it, with errors.ErrUnsupported.
	Engine Engine
	// Log is slog.Default when nil.
	Log *slog.Logger
}

// Engine carries impairments at the egress of devices of the lab's own, until they are
// cleared or this process ends. Its methods are idempotent.
type Engine interface {
	Set(ctx context.Context, p target.Place, n qdisc.Netem) error
	// Read returns what is in force; fs.ErrNotExist when the device is gone.
	Read(ctx context.Context, p target.Place) (qdisc.Netem, error)
	Clear(ctx context.Context, p target.Place) error
}

// Manager makes labs, keeps them and takes them away. It needs root. It is safe for
// concurrent use; changes of one lab happen one after the other.
type Manager struct {
	cfg   Config
	turns turns
	// hostCongestion says that the kernel takes no congestion control for a route.
	hostCongestion atomic.Bool
	// folder is held while the labs' folder is made with a record in it, or removed.
	folder sync.Mutex

	mu   sync.Mutex
	labs map[string]*running
}

// running is a lab as this process sees it.
type running struct {
	record  *record
	layout  *layout
	targets []target.Target
	// lifelines are the surviving children's standard inputs; Manager.mu guards them.
	lifelines []io.Closer
	services  services
	// held says that it is there for who holds it; who has the lab's turn changes it.
	held atomic.Bool
	// news are told when a service ended, or the lab is taken down.
	news news
	// down says why it is not up: it is being taken down, or could not be. It is nil
	// while the lab is up. Manager.mu guards it.
	down error
}

// New returns a manager without labs; Adopt finds those of an earlier process.
func New(c Config) (*Manager, error) {
	if c.StateDir == "" {
		return nil, errors.New("lab manager: no state folder")
	}
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		return nil, fmt.Errorf("lab manager: %w", err)
	}
	c.StateDir = realPath(dir)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Manager{cfg: c, labs: map[string]*running{}}, nil
}

// realPath follows the links in a path of which the end may not exist yet. One folder
// must have one name, since the name is the mark on what belongs to it.
func realPath(path string) string {
	if at, err := filepath.EvalSymlinks(path); err == nil || path == "/" {
		return at
	}
	return filepath.Join(realPath(filepath.Dir(path)), filepath.Base(path))
}

func (m *Manager) keep(r *running) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.labs[r.record.Definition.Name] = r
}

// setDown tells why the lab is not up.
func (m *Manager) setDown(r *running, why error) {
	m.mu.Lock()
	r.down = why
	m.mu.Unlock()
	r.news.tell()
}

// why returns why the lab is not up, nil when it is.
func (m *Manager) why(r *running) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.down
}

// info describes the lab; the record of a kept lab does not change.
func (r *running) info() Info {
	d := r.record.Definition
	info := Info{Name: d.Name, Up: r.record.Up, By: r.record.By, Held: r.held.Load()}
	services := map[string][]ServiceInfo{}
	for _, s := range r.record.Services {
		services[s.Node] = append(services[s.Node], r.serviceInfo(s))
	}
	sysctls := r.record.sysctlsByNode()
	for _, s := range r.layout.spots {
		n := NodeInfo{Name: s.name, Namespace: d.Namespace(s.name), Sysctls: sysctls[s.name], Services: services[s.name]}
		for _, a := range r.layout.addresses(s.name) {
			n.Addresses = append(n.Addresses, host(a))
		}
		info.Nodes = append(info.Nodes, n)
	}
	for _, t := range d.Targets {
		info.Targets = append(info.Targets, t.Name)
	}
	return info
}

// all returns the labs that are known, by name.
func (m *Manager) all() []*running {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*running
	for _, name := range slices.Sorted(maps.Keys(m.labs)) {
		all = append(all, m.labs[name])
	}
	return all
}

// List returns the labs, by name, with those that are broken or being taken down.
func (m *Manager) List(context.Context) ([]Info, error) {
	var infos []Info
	for _, r := range m.all() {
		infos = append(infos, r.info())
	}
	return infos, nil
}

// Get returns a lab as List does, or else ErrUnknown.
func (m *Manager) Get(_ context.Context, name string) (Info, error) {
	r, err := m.get(name)
	if err != nil {
		return Info{}, err
	}
	return r.info(), nil
}

func (m *Manager) get(name string) (*running, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.labs[name]
	if ok {
		return r, nil
	}
	if len(m.labs) == 0 {
		return nil, fmt.Errorf("%w %q: no lab is up", ErrUnknown, name)
	}
	return nil, fmt.Errorf("%w %q: up are %s", ErrUnknown, name, strings.Join(slices.Sorted(maps.Keys(m.labs)), ", "))
}

// Targets returns the targets of all labs that are up, by lab, with the interface
// indexes and the namespaces' cookies that were there when the lab was made or
// adopted. A lab has none from the moment that it is being taken down.
func (m *Manager) Targets(context.Context) ([]target.Target, error) {
	var all []target.Target
	for _, r := range m.all() {
		if m.why(r) == nil {
			all = append(all, r.targets...)
		}
	}
	return all, nil
}

// Close lets go of the labs without taking them down: their services go on. Proxies
// take their faults away.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.labs {
		r.services.end()
		r.release()
	}
	clear(m.labs)
	return nil
}

func (r *running) release() {
	for _, l := range r.lifelines {
		_ = l.Close()
	}
	r.lifelines = nil
}

// service returns the record of a service of a kind, of a lab that is up, that listens at
// one of its node's addresses.
func (m *Manager) service(lab string, kind string, at netip.AddrPort) (serviceRecord, error) {
	r, err := m.get(lab)
	if err != nil {
		return serviceRecord{}, err
	}
	if err := m.why(r); err != nil {
		return serviceRecord{}, fmt.Errorf("%w %q: %w", ErrUnknown, lab, err)
	}
	for _, s := range r.record.Services {
		if s.Kind == kind && r.listens(s, at) {
			return s, nil
		}
	}
	return serviceRecord{}, fmt.Errorf("lab %s: no %s at %v", lab, kind, at)
}

// listens reports whether a service is at one of its node's addresses.
func (r *running) listens(s serviceRecord, at netip.AddrPort) bool {
	return s.Address.Port() == at.Port() && slices.Contains(r.layout.addresses(s.Node), at.Addr())
}

// ServiceAt names the service, LAB/SERVICE, of a lab that is up that listens at one of its
// node's addresses.
func (m *Manager) ServiceAt(lab string, at netip.AddrPort) (name string, ok bool) {
	r, err := m.get(lab)
	if err != nil || m.why(r) != nil {
		return "", false
	}
	for _, s := range r.record.Services {
		if r.listens(s, at) {
			return lab + "/" + s.Name, true
		}
	}
	return "", false
}

// namespaceState is what stands at a node's name.
type namespaceState int

const (
	absent namespaceState = iota
	ours
	foreign
)

// look says whose the node's namespace is; a stale file of a crash is removed.
func (m *Manager) look(ctx context.Context, d Definition, node string) (namespaceState, error) {
	ns := d.Namespace(node)
	mark, err := readMark(ctx, ns)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return absent, nil
	case errors.Is(err, namespaces.ErrStale):
		return absent, namespaces.Prune(ns)
	case err != nil:
		return foreign, err
	case mark == m.mark(d.Name, node):
		return ours, nil
	}
	return foreign, nil
}
