package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// The most that Limits may be, beside fault.MaxTTL: each fault may cost a device, and all
// are looked at twice a second.
const (
	maxFaults    = 4096
	maxLabs      = 256
	maxProbes    = 64
	maxLoad      = 100_000
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
	// socketName is that of the socket in the state folder, unless it is said elsewhere.
	socketName = "/netemd.sock"
)

// outOfRange is what is wrong with a value of the right form.
const outOfRange = " is out of range"

// Validate returns everything that is wrong with c, each as a *Mistake. It asks nothing of
// the host.
func (c Config) Validate() error { return strictyaml.Join(c.mistakes()) }

func (c Config) mistakes() []*Mistake {
	v := &validation{}
	v.path("state_dir", c.StateDir, maxPath, true)
	if dir := len(c.StateDir) + len(socketName); c.Socket.Path == "" && dir > maxSocket {
		v.refuse("state_dir", c.StateDir, "is too long for the socket in it", fmt.Sprintf("at most %d bytes, or socket.path", maxSocket-len(socketName)))
	}
	v.path("socket.path", c.Socket.Path, maxSocket, false)
	if c.Socket.Group == "" || len(c.Socket.Group) > 256 {
		v.wrong("socket.group", c.Socket.Group)
	}
	if c.Socket.Mode&0o600 != 0o600 || c.Socket.Mode > maxMode {
		v.wrong("socket.mode", c.Socket.Mode.String())
	}
	v.tcp(c.TCP)
	most := fault.MaxTTL
	if v.ttl("ttl.max", c.TTL.Max, most) {
		most = time.Duration(c.TTL.Max)
	}
	v.ttl("ttl.default", c.TTL.Default, most)
	v.limits(c.Limits)
	rules, _ := strictyaml.Of(access.Validate(c.Allow))
	v.mistakes = append(v.mistakes, rules...)
	v.targets(c.Targets)
	v.profiles(c.Profiles)
	v.toxiproxy(c.Toxiproxy)
	v.path("audit.path", c.Audit.Path, maxPath, false)
	v.count("audit.max_megabytes", c.Audit.MaxMegabytes, 1, maxMegabytes)
	v.count("audit.keep", c.Audit.Keep, 0, maxKeep)
	v.address("metrics.listen", c.Metrics.Listen)
	v.hostPort("traces.otlp_endpoint", c.Traces.OTLPEndpoint)
	return v.mistakes
}

func (v *validation) toxiproxy(t Toxiproxy) {
	for _, s := range t.Allow {
		_, ok := prefixOf(s)
		if !ok && (!filepath.IsAbs(s) || filepath.Clean(s) != s || len(s) > maxSocket) {
			v.wrong("toxiproxy.allow", s)
		}
	}
}

type validation struct{ mistakes []*Mistake }

func (v *validation) refuse(key, value, wrong, want string) {
	v.mistakes = append(v.mistakes, &Mistake{Key: key, Value: value, Wrong: wrong, Want: want})
}

// wrong refuses a value that has not the form of its key.
func (v *validation) wrong(key, value string) {
	v.refuse(key, value, strictyaml.NotValid(value), forms[key])
}

// path wants an absolute one without "..", which root follows wherever it was started.
func (v *validation) path(key, path string, most int, needed bool) {
	if path == "" && !needed {
		return
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > most || strings.ContainsFunc(path, isControl) {
		v.wrong(key, path)
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func (v *validation) count(key string, n, least, most int) {
	if n < least || n > most {
		v.refuse(key, strconv.Itoa(n), strictyaml.Quote(strconv.Itoa(n))+outOfRange, forms[key])
	}
}

func (v *validation) ttl(key string, d Duration, most time.Duration) bool {
	t := time.Duration(d)
	ok := t >= fault.MinTTL && t <= most
	if !ok {
		v.refuse(key, d.String(), strictyaml.Quote(d.String())+outOfRange,
			fmt.Sprintf("a time from %s to %s with its unit, such as 1m", qdisc.FormatDuration(fault.MinTTL), qdisc.FormatDuration(most)))
	}
	return ok
}

func (v *validation) limits(l Limits) {
	if l.RequestBytes < minRequest || l.RequestBytes > maxRequest {
		v.refuse("limits.request_bytes", l.RequestBytes.String(), strictyaml.Quote(l.RequestBytes.String())+outOfRange, forms["limits.request_bytes"])
	}
	v.count("limits.faults", l.Faults, 1, maxFaults)
	v.count("limits.faults_per_owner", l.FaultsPerOwner, 1, maxFaults)
	v.count("limits.labs", l.Labs, 1, maxLabs)
	v.count("limits.probes_per_owner", l.ProbesPerOwner, 1, maxProbes)
	v.count("limits.probe_rate", l.ProbeRate, 1, maxLoad)
	v.count("limits.probe_in_flight", l.ProbeInFlight, 1, maxLoad)
	v.count("limits.followers", l.Followers, 1, maxStreams)
	v.count("limits.waiting", l.Waiting, 1, maxWaiting)
}

func (v *validation) tcp(t TCP) {
	v.address("tcp.listen", t.Listen)
	for _, f := range []struct{ key, path string }{{"tcp.certificate", t.Certificate}, {"tcp.key", t.Key}, {"tcp.client_ca", t.ClientCA}} {
		v.path(f.key, f.path, maxPath, false)
		if t.Listen != "" && f.path == "" {
			v.refuse(f.key, "", "is missing", forms[f.key])
		}
	}
}

// address is one of this host, said by number: a name may mean another one tomorrow.
func (v *validation) address(key, s string) {
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
		v.wrong(key, s)
	}
}

func (v *validation) hostPort(key, s string) {
	if s == "" {
		return
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || len(host) > 253 || !validPort(port) || port == "0" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == '/' }) {
		v.wrong(key, s)
	}
}

func validPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
