// Package config is the agent's configuration file: its form, defaults and limits. What is
// wrong with a file is said with its line and column (Mistake), everything at once.
package config

import (
	"net/netip"
	"slices"
	"time"

	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/internal/profile"
	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// DefaultPath is the file that netemd reads when none is named; it may be missing.
const DefaultPath = "/etc/netemd/netemd.yaml"

// Config is what the file says. The zero value of a field that is not said otherwise here
// is its default; Default fills the others in.
type Config struct {
	// StateDir holds everything that must not outlive a boot; default /run/netemd.
	StateDir string `yaml:"state_dir"`
	Socket   Socket `yaml:"socket"`
	TCP      TCP    `yaml:"tcp,omitempty"`
	TTL      TTL    `yaml:"ttl"`
	Limits   Limits `yaml:"limits"`
	// Allow are the rules of who may do what; none: root and the socket's group may do all.
	Allow []access.Rule `yaml:"allow,omitempty"`
	// Targets are names for what runs on this host, by which faults are aimed at it.
	Targets strictyaml.Named[Target] `yaml:"targets,omitempty"`
	// Toxiproxy says which Toxiproxies of others the agent calls.
	Toxiproxy Toxiproxy `yaml:"toxiproxy,omitempty"`
	Audit     Audit     `yaml:"audit,omitempty"`
	Metrics   Metrics   `yaml:"metrics,omitempty"`
	Traces    Traces    `yaml:"traces,omitempty"`
	// Profiles are impairments with a name, beside the built-in ones.
	Profiles strictyaml.Named[profile.Keys] `yaml:"profiles,omitempty"`
	// Repair puts every fault back that somebody else changed or removed, as --repair does
	// for one.
	Repair bool `yaml:"repair"`
	// Keep hands faults over a graceful stop to the next start, for the time that they
	// have left.
	Keep bool `yaml:"keep"`
}

// Socket is the unix socket.
type Socket struct {
	// Path is default StateDir/netemd.sock.
	Path string `yaml:"path,omitempty"`
	// Group is who is answered beside root where there are no rules; default netem.
	Group string `yaml:"group"`
	// Mode is its permissions, in octal; default 0666: everybody may ask, and who may not is
	// told so and written down. With 0660 the kernel keeps out whoever is not in Group, and
	// nobody hears of it.
	Mode Mode `yaml:"mode"`
}

// TCP is the listener for clients with certificates; none unless Listen is set.
type TCP struct {
	// Listen is ADDRESS:PORT.
	Listen string `yaml:"listen,omitempty"`
	// Certificate, Key and ClientCA are PEM files, read again when they change: the agent's
	// own, and the CAs that sign its clients'.
	Certificate string `yaml:"certificate,omitempty"`
	Key         string `yaml:"key,omitempty"`
	ClientCA    string `yaml:"client_ca,omitempty"`
	// Reflection offers the API's description to TCP peers.
	Reflection bool `yaml:"reflection,omitempty"`
}

// TTL is how long faults last: Default when nothing was asked for (10m), Max at most
// (24h).
type TTL struct {
	Default Duration `yaml:"default"`
	Max     Duration `yaml:"max"`
}

// Toxiproxy bounds where the API of a Toxiproxy may be that peers have the agent call.
type Toxiproxy struct {
	// Allow are addresses, prefixes, and absolute paths of unix sockets. Without one of them
	// users of this host have loopback addresses called, root unix sockets too, and peers
	// with a certificate none.
	Allow []string `yaml:"allow,omitempty"`
}

// Covers reports whether an address is allowed by its name here.
func (t Toxiproxy) Covers(at netip.Addr) bool {
	return slices.ContainsFunc(t.Prefixes(), func(p netip.Prefix) bool { return p.Contains(at.Unmap()) })
}

// Prefixes are the addresses and prefixes among Allow.
func (t Toxiproxy) Prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, s := range t.Allow {
		if p, ok := prefixOf(s); ok {
			all = append(all, p)
		}
	}
	return all
}

// prefixOf reads an address as a prefix of all its bits.
func prefixOf(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p, err == nil && p == p.Masked()
}

// Limits bound what peers can make the agent hold.
type Limits struct {
	// RequestBytes is the largest message of a request; default 1MiB, 1KiB..64MiB.
	RequestBytes Bytes `yaml:"request_bytes"`
	// Faults are held at once, default 256, at most 4096; FaultsPerOwner of one owner,
	// default all of them.
	Faults         int `yaml:"faults"`
	FaultsPerOwner int `yaml:"faults_per_owner"`
	// Labs are up at once; default 16, at most 256.
	Labs int `yaml:"labs"`
	// ProbesPerOwner run at once; default 4, at most 64.
	ProbesPerOwner int `yaml:"probes_per_owner"`
	// ProbeRate is the highest rate of a probe, in calls a second, and ProbeInFlight the
	// most calls that one may have under way; both default and at most 100000. They bound
	// the pace and the concurrency of closed loops, too, but with a ProbeRate of 100000 a
	// closed loop needs no pace.
	ProbeRate     int `yaml:"probe_rate"`
	ProbeInFlight int `yaml:"probe_in_flight"`
	// Followers are the streams that wait for what comes, of all peers: watches and followed
	// packets; default 64, at most 4096. One owner has a quarter of them at most, and of
	// Waiting.
	Followers int `yaml:"followers"`
	// Waiting are the applies that wait for another fault's end; default 64, at most 4096.
	Waiting int `yaml:"waiting"`
}

// Audit is the log of who did what, and beside it that of what was refused
// (audit.RefusedPath), each with these limits; none unless Path is set.
type Audit struct {
	Path string `yaml:"path,omitempty"`
	// MaxMegabytes is the size, in 10^6 bytes, at which it is rotated; default 10,
	// 1..1000. Keep is how many rotated ones stay; default 5, at most 100.
	MaxMegabytes int `yaml:"max_megabytes,omitempty"`
	Keep         int `yaml:"keep,omitempty"`
}

// Metrics is where Prometheus may read; nowhere unless Listen is set.
type Metrics struct {
	// Listen is ADDRESS:PORT.
	Listen string `yaml:"listen,omitempty"`
}

// Traces is where OpenTelemetry traces go; nowhere unless OTLPEndpoint is set.
type Traces struct {
	// OTLPEndpoint is HOST:PORT of a collector that speaks OTLP over gRPC; Insecure is
	// without TLS.
	OTLPEndpoint string `yaml:"otlp_endpoint,omitempty"`
	Insecure     bool   `yaml:"insecure,omitempty"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		StateDir: "/run/netemd",
		Socket:   Socket{Group: "netem", Mode: 0o666},
		TTL:      TTL{Default: Duration(fault.DefaultTTL), Max: Duration(fault.MaxTTL)},
		Limits: Limits{
			RequestBytes: 1 << 20, Faults: 256, FaultsPerOwner: 256, Labs: 16, ProbesPerOwner: 4, ProbeRate: maxLoad, ProbeInFlight: maxLoad, Followers: 64, Waiting: 64,
		},
		Audit: Audit{MaxMegabytes: 10, Keep: 5},
	}
}

// Duration is a time with its unit: "10m"; a bare number is refused.
type Duration time.Duration

// Bytes is an amount with its unit: "1MiB"; a bare number is refused.
type Bytes qdisc.Bytes

// Mode is a file's permissions, in octal: 0666.
type Mode uint32
