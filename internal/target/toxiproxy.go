package target

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strings"

	"netemd/qdisc"
)

// Toxiproxy is one proxy of a Toxiproxy that somebody else runs, or is to be made there.
type Toxiproxy struct {
	// API is where its HTTP API answers, as seen by the agent: "127.0.0.1:8474",
	// "toxiproxy.example:8474", or "unix:/run/toxiproxy.sock".
	API string
	// Name is that of a proxy which is there; empty is one of the agent's own, made with the
	// fault and deleted at its end, which Listen and Upstream describe.
	Name string
	// Listen is the address and port at which it listens, Upstream the host and port to
	// which it forwards.
	Listen, Upstream string
	// Loopback says that a name of the API may be one of a loopback address when it is
	// connected to: who asked may reach that himself. The agent sets it; no text has it.
	Loopback bool
}

// Literal reports whether the API is at an address, which cannot turn into another one.
func (t Toxiproxy) Literal() bool {
	_, err := netip.ParseAddrPort(t.API)
	return err == nil
}

// DefaultToxiproxyPort is where a Toxiproxy's API listens unless it is told otherwise
// (cmd/server of Shopify/toxiproxy).
const DefaultToxiproxyPort = "8474"

// maxProxyName bounds the name of a proxy, in bytes.
const maxProxyName = 128

const (
	wantAPI      = "the address of a Toxiproxy's API, such as http://127.0.0.1:8474 or unix:/run/toxiproxy.sock"
	wantProxy    = "the name of a proxy that is there: letters, digits and any of _.:-"
	wantListen   = "an address with a port from 1 to 65535, such as 127.0.0.1:15432"
	wantUpstream = "a host with a port from 1 to 65535, such as 127.0.0.1:5432 or db.example:5432"
	// wantToxiproxy are the inline forms of a Toxiproxy.
	wantToxiproxy = "toxiproxy:PROXY@HOST:PORT of one that is there, or toxiproxy:LISTEN=UPSTREAM@HOST:PORT of one to be made"
)

// ParseToxiproxy reads what stands behind "toxiproxy:": PROXY@API or LISTEN=UPSTREAM@API.
// The error is a *qdisc.FieldError.
func ParseToxiproxy(text string) (Toxiproxy, error) {
	proxy, api, ok := strings.Cut(text, "@")
	if !ok || proxy == "" {
		return Toxiproxy{}, refusal("toxiproxy", text, wantToxiproxy)
	}
	t := Toxiproxy{API: api, Name: proxy}
	if listen, upstream, own := strings.Cut(proxy, "="); own {
		t.Name, t.Listen, t.Upstream = "", listen, upstream
	}
	t, err := t.Normalize()
	if bad, ok := errors.AsType[*qdisc.FieldError](err); ok { // one text, one mistake
		return t, refusal("toxiproxy", text, wantToxiproxy+"; with "+bad.Want)
	}
	return t, err
}

// Normalize returns t with its API in the one form, without "http://" and with a port, and
// everything that is wrong with t, each as a *qdisc.FieldError: toxiproxy, proxy, listen or
// upstream.
func (t Toxiproxy) Normalize() (Toxiproxy, error) {
	v := validation{}
	api, ok := normalAPI(t.API)
	if !ok {
		v.refuse("toxiproxy", t.API, wantAPI)
	}
	t.API = api
	switch {
	case t.Name != "":
		if t.Listen != "" || t.Upstream != "" {
			v.refuse("proxy", t.Name, "a proxy that is there, or listen and upstream of one to be made, not both")
		}
		if len(t.Name) > maxProxyName || strings.ContainsFunc(t.Name, func(r rune) bool { return r == '/' || r != ':' && notInName(r) }) || strings.Trim(t.Name, ".") == "" {
			v.refuse("proxy", t.Name, wantProxy)
		}
	case t.Listen == "" && t.Upstream == "":
		v.refuse("proxy", "", wantProxy+"; or listen and upstream of one to be made")
	default:
		if a, err := netip.ParseAddrPort(t.Listen); err != nil || a.Port() == 0 || a.Addr().Zone() != "" {
			v.refuse("listen", t.Listen, wantListen)
		} else {
			t.Listen = a.String()
		}
		if !isEndpoint(t.Upstream) {
			v.refuse("upstream", t.Upstream, wantUpstream)
		}
	}
	return t, errors.Join(v.errs...)
}

// normalAPI is false for what is no address of an API.
func normalAPI(s string) (string, bool) {
	if file, ok := strings.CutPrefix(s, "unix:"); ok {
		file = strings.TrimPrefix(file, "//")
		return "unix:" + file, path.IsAbs(file) && path.Clean(file) == file && file != "/" && printable(file) && !strings.ContainsAny(file, "@=")
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "http://"), "/")
	u, err := url.Parse("http://" + s)
	if err != nil || u.Host != s || u.User != nil {
		return s, false
	}
	if u.Port() == "" {
		s = net.JoinHostPort(u.Hostname(), DefaultToxiproxyPort)
	}
	return s, isEndpoint(s)
}

// isEndpoint reports whether s is HOST:PORT, with an address or a name of one host.
func isEndpoint(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	if _, err := parsePort(port); err != nil {
		return false
	}
	v := validation{}
	v.host(host)
	return host != "" && len(v.errs) == 0
}

// String is what ParseToxiproxy reads.
func (t Toxiproxy) String() string {
	if t.Name != "" {
		return t.Name + "@" + t.API
	}
	return t.Listen + "=" + t.Upstream + "@" + t.API
}

// Text is the inline form of it as a target.
func (t Toxiproxy) Text() string { return string(KindToxiproxy) + ":" + t.String() }

// Words are it for people: "proxy redis of the Toxiproxy at 127.0.0.1:8474".
func (t Toxiproxy) Words() string {
	if t.Name != "" {
		return "proxy " + t.Name + " of the Toxiproxy at " + t.API
	}
	return "a proxy at " + t.Listen + " to " + t.Upstream + ", of the Toxiproxy at " + t.API
}
