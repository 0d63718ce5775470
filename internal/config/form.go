package config

import (
	"fmt"

	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// forms says which form the value of each key has, in the words that follow "want". The
// index of a rule is not in the key.
var forms = map[string]string{
	"state_dir":               path(maxPath),
	"socket.path":             path(maxSocket),
	"socket.group":            "the name of a group, such as netem",
	"socket.mode":             "permissions in octal by which its owner may read and write, such as 0666",
	"tcp.listen":              address,
	"tcp.certificate":         pem,
	"tcp.key":                 pem,
	"tcp.client_ca":           pem,
	"tcp.reflection":          boolean,
	"ttl.default":             "a time from " + qdisc.FormatDuration(fault.MinTTL) + " to ttl.max with its unit, such as 10m",
	"ttl.max":                 fmt.Sprintf("a time from %s to %s with its unit, such as 1h", qdisc.FormatDuration(fault.MinTTL), qdisc.FormatDuration(fault.MaxTTL)),
	"limits.request_bytes":    fmt.Sprintf("an amount from %s to %s with its unit, such as 256KiB", qdisc.Bytes(minRequest), qdisc.Bytes(maxRequest)),
	"limits.faults":           number(1, maxFaults),
	"limits.faults_per_owner": number(1, maxFaults),
	"limits.labs":             number(1, maxLabs),
	"limits.probes_per_owner": number(1, maxProbes),
	"limits.probe_rate":       number(1, maxLoad),
	"limits.probe_in_flight":  number(1, maxLoad),
	"limits.followers":        number(1, maxStreams),
	"limits.waiting":          number(1, maxWaiting),
	"allow":                   allowForm,
	"allow[]":                 "a rule: users, groups or certificates, their verbs, and targets",
	"allow[].users":           "a list of users: names, numbers, or \"*\" for everybody",
	"allow[].groups":          "a list of groups: names or numbers",
	"allow[].certificates":    "a list of common names, URIs, or \"*\" for every one that the CA signed",
	"allow[].verbs":           "a list of verbs: " + access.Known(),
	"allow[].targets":         `a list of patterns of names, such as "pg*", "dev:NAME", "dev:NAME@NAMESPACE", "container:NAME" or another kind, or "*"`,
	"targets":                 fmt.Sprintf("names for targets, at most %d: NAME: {container: web, port: 5432}", maxTargets),
	"toxiproxy.allow":         "a list of addresses, prefixes whose host bits are zero, and absolute paths of unix sockets: [192.0.2.7, 10.0.0.0/8, /run/toxiproxy.sock]",
	"audit.path":              path(maxPath),
	"audit.max_megabytes":     number(1, maxMegabytes),
	"audit.keep":              number(0, maxKeep),
	"metrics.listen":          address,
	"traces.otlp_endpoint":    "HOST:PORT, such as collector:4317",
	"traces.insecure":         boolean,
	"profiles":                "NAME: {both: IMPAIRMENT}, or {uplink: IMPAIRMENT, downlink: IMPAIRMENT}, below it, or the key left out",
	"repair":                  boolean,
	"keep":                    boolean,
}

const (
	address = "ADDRESS:PORT, such as 192.0.2.1:7070, or :7070 for every address"
	pem     = "an absolute path of a PEM file; over TCP both ends show a certificate"
	boolean = "true or false"
	// An empty list may be meant as everybody, as no key is, or as nobody.
	allowForm = `a list of rules; to let root and the socket's group do everything leave the key out, and for root alone say: allow: [{users: [root], verbs: ["*"], targets: ["*"]}]`
)

// leading are the keys without which the others of their section mean nothing.
var leading = map[string]string{"tcp": "listen", "audit": "path", "metrics": "listen", "traces": "otlp_endpoint"}

func path(most int) string {
	return fmt.Sprintf("an absolute path of at most %d bytes without '..' and doubled '/'", most)
}

func number(least, most int) string { return fmt.Sprintf("a number from %d to %d", least, most) }
