package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/lab/service"
	"netemd/internal/testbed/control"
	"netemd/qdisc"
)

// order is how a service that is no PostgreSQL is run.
func (m *Manager) order(r *running, rec *serviceRecord, s ServiceDefinition) (service.Order, error) {
	d := r.record.Definition
	o := service.Order{Name: rec.Name, Folder: m.serviceDir(d.Name, rec.Name), Log: s.Log, Writer: writer(r.record.By)}
	if rec.Kind == KindCommand {
		return m.commandOrder(r, rec, s, o)
	}
	id, err := unprivileged()
	if err != nil {
		return o, err
	}
	o.Environment = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	o.Ready = service.Readiness{TCP: []netip.AddrPort{rec.Address}, Within: s.ReadyTimeout}
	o.Child = rec.Kind
	switch rec.Kind {
	case KindToxiproxy:
		upstream, err := r.layout.upstream(s)
		if err != nil {
			return o, err
		}
		socket, err := newProxySocket(rec.Home)
		if err != nil {
			return o, err
		}
		// It takes on its user by itself, since the socket is in a folder of root's.
		o.Child, o.Lifeline = proxyChild, true
		o.Command = []string{"--api", socket, "--listen", rec.Address.String(), "--upstream", upstream.String(), "--user", fmt.Sprintf("%d:%d", id.UID, id.GID), "--name", rec.Name}
		if s.API != 0 {
			o.Command = append(o.Command, "--serve", netip.AddrPortFrom(rec.Address.Addr(), s.API).String())
		}
	case KindHTTPProxy:
		upstream, err := r.layout.upstream(s)
		if err != nil {
			return o, err
		}
		socket, err := newProxySocket(rec.Home)
		if err != nil {
			return o, err
		}
		o.Lifeline = true
		o.Command = []string{"--api", socket, "--listen", rec.Address.String(), "--upstream", upstream.String(), "--user", fmt.Sprintf("%d:%d", id.UID, id.GID)}
	case KindHTTPEcho, KindHTTPTier:
		socket, err := newSocket(rec.Home, control.Socket)
		if err != nil {
			return o, err
		}
		// It takes on its user by itself, since the socket is in a folder of root's.
		o.Command = []string{"--port", fmt.Sprint(rec.Address.Port()), "--control", socket, "--user", fmt.Sprintf("%d:%d", id.UID, id.GID)}
		if s.Settings != "" {
			text, err := r.layout.settings([]byte(s.Settings))
			if err != nil {
				return o, err
			}
			o.Command = append(o.Command, "--settings", string(text))
		}
	case KindPayment:
		url, password, err := m.ledger(r, s)
		if err != nil {
			return o, err
		}
		socket, err := newSocket(rec.Home, control.Socket)
		if err != nil {
			return o, err
		}
		// It takes on its user by itself, since the socket is in a folder of root's.
		o.Environment = append(o.Environment, "PGPASSWORD="+password)
		o.Command = []string{"--port", fmt.Sprint(rec.Address.Port()), "--control", socket, "--user", fmt.Sprintf("%d:%d", id.UID, id.GID), "--database", url}
	default:
		o.Identity = id
		o.Command = []string{"--port", fmt.Sprint(rec.Address.Port())}
	}
	return o, nil
}

// ledger is the URL of a payment's database, and the password that it logs in with as a probe
// does: in an environment, which others cannot read.
func (m *Manager) ledger(r *running, s ServiceDefinition) (url, password string, err error) {
	upstream, err := r.layout.upstream(s)
	if err != nil {
		return "", "", err
	}
	of, _ := r.layout.database(s)
	text, err := os.ReadFile(m.probePasswordPath(r.record.Definition.Name, of.Name))
	if err != nil {
		return "", "", fmt.Errorf("password of %s: %w", of.Name, err)
	}
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", probeUser, upstream, postgresDatabase), strings.TrimSpace(string(text)), nil
}

// commandOrder is how a program of the user's own is run.
func (m *Manager) commandOrder(r *running, rec *serviceRecord, s ServiceDefinition, o service.Order) (service.Order, error) {
	d := r.record.Definition
	id, err := identityOf(r.record.By, s)
	if err != nil {
		return o, err
	}
	name, home := id.Home()
	o.Identity, o.Command, o.Directory = id, s.Command, s.Directory
	o.Environment = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "USER=" + name, "LOGNAME=" + name, "LANG=C.UTF-8",
		"NETEMD_LAB=" + d.Name, "NETEMD_NODE=" + rec.Node,
	}, s.Environment...)
	o.Ready = service.Readiness{HTTP: s.Ready.HTTP, Command: s.Ready.Command, Within: s.ReadyTimeout}
	if s.Ready.TCP != 0 {
		loopback := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
		for _, at := range append(r.layout.addresses(rec.Node), loopback...) {
			o.Ready.TCP = append(o.Ready.TCP, netip.AddrPortFrom(at, s.Ready.TCP))
		}
	}
	return o, nil
}

// writer is who may write the log file that a definition names.
func writer(by Identity) *service.Identity {
	id := service.Identity(by)
	return &id
}

// identityOf is whom a command runs as: who asked for the lab, or another one when root
// asked. The error is fs.ErrPermission for anybody else's wish, and a *qdisc.FieldError
// without a field for a user that is not there.
func identityOf(by Identity, s ServiceDefinition) (service.Identity, error) {
	if s.User == "" {
		return service.Identity(by), nil
	}
	id, err := service.LookUp(s.User)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		return id, &qdisc.FieldError{Value: s.User, Want: "a user of this host, by name or number"}
	}
	if _, unknown := errors.AsType[user.UnknownUserIdError](err); unknown {
		return id, &qdisc.FieldError{Value: s.User, Want: "a user of this host, by name or number"}
	}
	if err != nil {
		return id, err
	}
	if by.UID != 0 && id.UID != by.UID {
		return id, fmt.Errorf("user %s: %w: only root may have a command run as another user (uid %d asks)", s.User, fs.ErrPermission, by.UID)
	}
	if by.UID != 0 {
		return service.Identity(by), nil // with the groups of the login
	}
	return id, nil
}

// checkIdentities finds out before anything changes whom the commands would run as.
func (d Definition) checkIdentities(by Identity) error {
	var errs []error
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			if s.kind() != KindCommand {
				continue
			}
			if _, err := identityOf(by, s); err != nil {
				field := fmt.Sprintf("nodes.%s.services.%s.user", n.Name, s.Name)
				if bad, ok := errors.AsType[*qdisc.FieldError](err); ok {
					bad.Field = field
				} else {
					err = fmt.Errorf("%s: %w", field, err)
				}
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// unprivileged is whom the servers of netemd's own run as, which need nothing.
func unprivileged() (service.Identity, error) {
	id, err := service.LookUp("nobody")
	id.Groups = nil
	return id, err
}

// oldSteps are how a service of an earlier netemd, which has no keeper, is ended.
func oldSteps(kind string) []service.Step {
	kill := service.Step{Signal: unix.SIGKILL, Wait: 5 * time.Second}
	if kind == KindPostgres {
		return append(append([]service.Step{}, postgresStop...), kill)
	}
	return []service.Step{{Signal: unix.SIGTERM, Wait: 2 * time.Second}, kill}
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

// HTTPProxySocket returns the unix socket of the API of the lab's http-proxy that listens at that
// address.
func (m *Manager) HTTPProxySocket(lab string, at netip.AddrPort) (string, error) {
	s, err := m.service(lab, KindHTTPProxy, at)
	if err != nil {
		return "", err
	}
	return proxySocket(s.Home), nil
}

const proxySocketName = "proxy.sock"

func proxySocket(home string) string { return filepath.Join(home, proxySocketName) }

// proxyChild is the child that the stream engine registers.
const proxyChild = "proxy"

// newProxySocket makes room for the socket.
func newProxySocket(home string) (string, error) { return newSocket(home, proxySocketName) }

func newSocket(home, name string) (string, error) {
	const maxPath = 107 // sun_path of linux/un.h, less the closing NUL
	socket := filepath.Join(home, name)
	if len(socket) > maxPath {
		return "", fmt.Errorf("socket %s: the state folder's path is too long (%d bytes, at most %d)", socket, len(socket), maxPath)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return socket, nil
}

// answersUnix is nil when somebody takes connections at the unix socket.
func answersUnix(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}
