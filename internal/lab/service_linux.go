package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/child"
	"netemd/internal/failpoint"
	"netemd/namespaces"
)

// homePrefix begins the name of a service's data folder outside of the state folder.
const homePrefix = "netemd-lab-"

// pollInterval is the pause between two questions whether a service is ready.
const pollInterval = 5 * time.Millisecond

// Limits of a service's start. initdb and the first start of PostgreSQL take 1.5 s on
// an idle machine, and twenty times that on an emulated one.
const (
	postgresLimit = 3 * time.Minute
	proxyLimit    = 30 * time.Second
)

// stopSteps are how a service is ended. PostgreSQL's SIGINT is its fast shutdown,
// SIGQUIT its immediate one (pg_ctl(1)).
func stopSteps(kind string) []step {
	kill := step{unix.SIGKILL, 5 * time.Second}
	if kind == KindPostgres {
		return []step{{unix.SIGINT, 10 * time.Second}, {unix.SIGQUIT, time.Second}, kill}
	}
	return []step{{unix.SIGTERM, 2 * time.Second}, kill}
}

// startService starts a service of the node and waits until it answers.
func (m *Manager) startService(ctx context.Context, r *running, node string, s ServiceDefinition, progress func(string)) error {
	lab := r.record.Definition.Name
	dir := m.serviceDir(lab, s.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	address, _ := r.record.Definition.Address(node)
	r.record.Services = append(r.record.Services, serviceRecord{
		Node: node, Name: s.Name, Kind: s.Kind, Address: netip.AddrPortFrom(address, s.Port),
		Home: dir, Log: filepath.Join(dir, s.Name+".log"),
	})
	rec := &r.record.Services[len(r.record.Services)-1]
	if s.Kind == KindPostgres {
		return m.startPostgres(ctx, r, rec, progress)
	}
	progress(fmt.Sprintf("%s: starting on %s", rec.Name, rec.Address))
	upstream, err := r.record.Definition.Upstream(s)
	if err != nil {
		return err
	}
	return m.startProxy(ctx, r, rec, upstream)
}

// adoptService checks that an earlier process's service answers. A proxy is replaced:
// its lifeline ended with that process.
func (m *Manager) adoptService(ctx context.Context, r *running, rec *serviceRecord) error {
	d := r.record.Definition
	if rec.Kind == KindPostgres {
		if !rec.Process.alive() {
			return fmt.Errorf("process %d has ended", rec.Process.PID)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, postgresLimit, fmt.Errorf("no answer for %v", postgresLimit))
		defer cancel()
		return m.wait(ctx, rec, nil, func() error { return askPostgres(ctx, d.Namespace(rec.Node), rec.Address) })
	}
	if err := rec.Process.stop(stopSteps(rec.Kind)...); err != nil {
		return err
	}
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			if s.Name == rec.Name {
				upstream, err := d.Upstream(s)
				if err != nil {
					return err
				}
				return m.startProxy(ctx, r, rec, upstream)
			}
		}
	}
	return errors.New("is not in the lab's definition")
}

// ProxySocket returns the unix socket of the API of the lab's proxy that listens at
// that address.
func (m *Manager) ProxySocket(lab string, at netip.AddrPort) (string, error) {
	s, err := m.service(lab, KindToxiproxy, at)
	if err != nil {
		return "", err
	}
	return proxySocket(s.Home), nil
}

func proxySocket(home string) string { return filepath.Join(home, "proxy.sock") }

// proxyChild is the child that the stream engine registers.
const proxyChild = "proxy"

func (m *Manager) startProxy(ctx context.Context, r *running, rec *serviceRecord, upstream netip.AddrPort) error {
	const maxPath = 107 // sun_path of linux/un.h, less the closing NUL
	socket := proxySocket(rec.Home)
	if len(socket) > maxPath {
		return fmt.Errorf("socket %s: the state folder's path is too long (%d bytes, at most %d)", socket, len(socket), maxPath)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := openLog(rec.Log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	ns := r.record.Definition.Namespace(rec.Node)
	p, err := child.Start(ns, child.Options{Survive: true, Stdout: log, Stderr: log}, proxyChild,
		"--api", socket, "--listen", rec.Address.String(), "--upstream", upstream.String())
	if err != nil {
		return err
	}
	r.lifelines = append(r.lifelines, p.Stdin)
	gone := make(chan error, 1)
	go func() { gone <- p.Wait() }()
	if err := m.started(r.record, rec, p.PID); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, proxyLimit, fmt.Errorf("not ready after %v", proxyLimit))
	defer cancel()
	return m.wait(ctx, rec, gone, func() error {
		c, err := net.DialTimeout("unix", socket, time.Second)
		if err != nil {
			return err
		}
		_ = c.Close()
		c, err = dial(ctx, ns, rec.Address)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// started records a service's process, so that it can be ended after a crash.
func (m *Manager) started(r *record, rec *serviceRecord, pid int) (err error) {
	failpoint.At("lab.service.started")
	if rec.Process, err = identify(pid); err != nil {
		return fmt.Errorf("ended at once: %w%s", err, logTail(rec.Log))
	}
	err = m.save(r)
	failpoint.At("lab.service.recorded")
	return err
}

// wait asks until the service is ready, has ended or ctx ends. gone is nil when this
// process is not the service's parent.
func (m *Manager) wait(ctx context.Context, rec *serviceRecord, gone <-chan error, ask func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case end := <-gone:
			if end == nil {
				end = errors.New("exit status 0")
			}
			return fmt.Errorf("ended before it was ready: %w%s", end, logTail(rec.Log))
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)%s", context.Cause(ctx), err, logTail(rec.Log))
		case <-tick.C:
		}
	}
}

// dial opens a TCP connection from inside the namespace.
func dial(ctx context.Context, namespace string, to netip.AddrPort) (c net.Conn, err error) {
	err = namespaces.Do(ctx, namespace, func() error {
		c, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", to.String())
		return err
	})
	return c, err
}

// openLog opens a service's log for appending, for root alone.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// logTail returns the last lines of a log for an error message.
func logTail(path string) string {
	const lines, size = 3, 2048
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(end-size, 0), io.SeekStart)
	}
	text, err := io.ReadAll(io.LimitReader(f, size))
	text = bytes.TrimSpace(text)
	if err != nil || len(text) == 0 {
		return ""
	}
	all := strings.Split(string(text), "\n")
	return "; its log: " + strings.Join(all[max(len(all)-lines, 0):], " | ")
}
