package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// The most that Limits may be, beside fault.MaxTTL: each fault may cost a device, and all
// are looked at twice a second.
const (
	maxFaults    = 4096
	maxLabs      = 256
	maxProbes    = 64
	maxStreams   = 4096
	maxWaiting   = 4096
	minRequest   = 1 << 10
	maxRequest   = 64 << 20
	maxMegabytes = 1000
	maxKeep      = 100
	// maxPath is the longest path of a file (PATH_MAX of linux/limits.h, with its NUL),
	// maxSocket that of a unix socket (sun_path of unix(7), with its NUL).
	maxPath   = 4095
	maxSocket = 107
)

// Validate returns everything that is wrong with c, each as a *qdisc.FieldError with its
// path. It asks nothing of the host.
func (c Config) Validate() error {
	v := &validation{}
	v.path("state_dir", c.StateDir, maxPath, true)
	v.path("socket.path", c.Socket.Path, maxSocket, false)
	if c.Socket.Group == "" || len(c.Socket.Group) > 256 {
		v.refuse("socket.group", c.Socket.Group, "the name of a group")
	}
	if c.Socket.Mode&0o600 != 0o600 || c.Socket.Mode > maxMode {
		v.refuse("socket.mode", c.Socket.Mode.String(), "permissions in octal by which its owner may read and write, such as 0666")
	}
	v.tcp(c.TCP)
	v.ttl("ttl.default", c.TTL.Default, time.Duration(c.TTL.Max))
	v.ttl("ttl.max", c.TTL.Max, fault.MaxTTL)
	v.limits(c.Limits)
	v.errs = append(v.errs, access.Validate(c.Allow))
	v.path("audit.path", c.Audit.Path, maxPath, false)
	v.count("audit.max_megabytes", c.Audit.MaxMegabytes, 1, maxMegabytes)
	v.count("audit.keep", c.Audit.Keep, 0, maxKeep)
	v.address("metrics.listen", c.Metrics.Listen)
	v.hostPort("traces.otlp_endpoint", c.Traces.OTLPEndpoint)
	return errors.Join(v.errs...)
}

type validation struct{ errs []error }

func (v *validation) refuse(field, value, want string) {
	v.errs = append(v.errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
}

// path wants an absolute one without "..", which root follows wherever it was started.
func (v *validation) path(field, path string, most int, needed bool) {
	switch {
	case path == "" && !needed:
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > most || strings.ContainsRune(path, 0):
		v.refuse(field, path, fmt.Sprintf("an absolute path of at most %d bytes without '..' and doubled '/'", most))
	}
}

func (v *validation) count(field string, n, least, most int) {
	if n < least || n > most {
		v.refuse(field, strconv.Itoa(n), fmt.Sprintf("a number from %d to %d", least, most))
	}
}

func (v *validation) ttl(field string, d Duration, most time.Duration) {
	if t := time.Duration(d); t < fault.MinTTL || t > most {
		v.refuse(field, d.String(), fmt.Sprintf("a time from %s to %s, such as 10m", qdisc.FormatDuration(fault.MinTTL), qdisc.FormatDuration(most)))
	}
}

func (v *validation) limits(l Limits) {
	if l.RequestBytes < minRequest || l.RequestBytes > maxRequest {
		v.refuse("limits.request_bytes", l.RequestBytes.String(), fmt.Sprintf("an amount from %s to %s", qdisc.Bytes(minRequest), qdisc.Bytes(maxRequest)))
	}
	v.count("limits.faults", l.Faults, 1, maxFaults)
	v.count("limits.faults_per_owner", l.FaultsPerOwner, 1, maxFaults)
	v.count("limits.labs", l.Labs, 1, maxLabs)
	v.count("limits.probes_per_owner", l.ProbesPerOwner, 1, maxProbes)
	v.count("limits.followers", l.Followers, 1, maxStreams)
	v.count("limits.waiting", l.Waiting, 1, maxWaiting)
}

func (v *validation) tcp(t TCP) {
	v.address("tcp.listen", t.Listen)
	for _, f := range []struct{ name, path string }{{"certificate", t.Certificate}, {"key", t.Key}, {"client_ca", t.ClientCA}} {
		field := "tcp." + f.name
		v.path(field, f.path, maxPath, false)
		switch {
		case t.Listen != "" && f.path == "":
			v.refuse(field, "", "a PEM file: over TCP both ends show a certificate")
		case t.Listen == "" && f.path != "":
			v.refuse("tcp.listen", "", "ADDRESS:PORT, beside "+field)
		}
	}
}

// address is one of this host, said by number: a name may mean another one tomorrow.
func (v *validation) address(field, s string) {
	if s == "" {
		return
	}
	host, port, err := net.SplitHostPort(s)
	ok := err == nil && port != "" && validPort(port)
	if ok && host != "" {
		_, err = netip.ParseAddr(host)
		ok = err == nil
	}
	if !ok {
		v.refuse(field, s, "ADDRESS:PORT, such as 192.0.2.1:7070, or :7070 for every address")
	}
}

func (v *validation) hostPort(field, s string) {
	if s == "" {
		return
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || len(host) > 253 || !validPort(port) || port == "0" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == '/' }) {
		v.refuse(field, s, "HOST:PORT, such as collector:4317")
	}
}

func validPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
