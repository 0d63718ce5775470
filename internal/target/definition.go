package target

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"netemd/namespaces"
)

// Kind says what a Definition stands for.
type Kind string

// The kinds. Those but Interface have an inline form, "container:web:5432", which stands
// wherever a target's name does.
const (
	KindLab       Kind = "lab" // of a lab; no Definition is of it
	KindInterface Kind = "interface"
	KindNamespace Kind = "netns"
	KindProcess   Kind = "pid"
	KindContainer Kind = "container"
	KindAddress   Kind = "host"
	KindCgroup    Kind = "cgroup"
	KindUnit      Kind = "unit"
	// KindToxiproxy is a proxy, not a place: only toxics can be aimed at it.
	KindToxiproxy Kind = "toxiproxy"
)

// Origin says where a target comes from. A name is looked for in this order.
type Origin string

// The origins of a target.
const (
	OriginConfig Origin = "config" // targets: of the configuration
	OriginAdded  Origin = "added"  // netemctl target add
	OriginLab    Origin = "lab"
	OriginInline Origin = "inline" // a text such as "container:web:5432"
)

// Definition says what a name stands for, in the user's words; nothing of it is looked up.
// Exactly one of Container, PID, Host, Cgroup, Unit, Toxiproxy, AddressIn, Device and Namespace says
// the kind, in that order: Device and Namespace may stand beside others as is said there.
//
// Ports and Protocol are the target's own, so that packets to it have them as destination,
// and those from it as source.
type Definition struct {
	// Name is what it is called by; empty for an inline one. The key of it in a file.
	Name string `json:"name,omitempty"`
	// Container is a container's name, its id or the beginning of that.
	Container string `json:"container,omitempty"`
	// PID is a process in a network namespace other than the agent's.
	PID int `json:"pid,omitempty"`
	// Started is when the process began, in clock ticks since the boot (proc_pid_stat(5),
	// field 22), so that another one with its number is not taken for it; 0: not known. The
	// agent fills it in when a definition is added.
	Started uint64 `json:"started,omitempty"`
	// Host is an address or a host name. It is looked up again while a fault lasts, and so is
	// the way there.
	Host string `json:"host,omitempty"`
	// Cgroup is a path below the root of the cgroup hierarchy of version 2: "/user.slice".
	Cgroup string `json:"cgroup,omitempty"`
	// Unit is a systemd unit: "postgresql.service".
	Unit string `json:"unit,omitempty"`
	// Toxiproxy is a proxy as ParseToxiproxy reads it: "redis@127.0.0.1:8474".
	Toxiproxy string `json:"toxiproxy,omitempty"`
	// AddressIn is the one device that has an address in it.
	AddressIn netip.Prefix `json:"address_in,omitzero"`
	// Device is a network device; beside Container, PID and Namespace the one of several
	// in there, beside Cgroup and Unit the one that their packets pass.
	Device string `json:"device,omitempty"`
	// Namespace is a reference as of package namespaces: alone all of that namespace, whose
	// one device of several a "%DEVICE" behind it says (what goes to the namespace arrives there,
	// while Device is the device itself, and what goes to it leaves there); beside
	// Device, AddressIn, Host, Cgroup and Unit the one in which they, or the packets of these,
	// are looked for; empty: the agent's.
	Namespace string `json:"netns,omitempty"`
	// Protocol is the IP protocol; 0 any, with Ports each that has ports.
	Protocol Protocol `json:"protocol,omitempty"`
	Ports    []Ports  `json:"port,omitempty"`
}

// Kind is what d stands for; empty when it says nothing.
func (d Definition) Kind() Kind {
	switch {
	case d.Container != "":
		return KindContainer
	case d.PID != 0:
		return KindProcess
	case d.Host != "":
		return KindAddress
	case d.Cgroup != "":
		return KindCgroup
	case d.Unit != "":
		return KindUnit
	case d.Toxiproxy != "":
		return KindToxiproxy
	case d.Device != "", d.AddressIn.IsValid():
		return KindInterface
	case d.Namespace != "":
		return KindNamespace
	}
	return ""
}

// Within is the reference of d's namespace, and the device of it that a "%DEVICE" behind that
// says, which only a namespace itself may have.
func (d Definition) Within() (namespace, device string) {
	if d.Kind() != KindNamespace {
		return d.Namespace, ""
	}
	i := strings.LastIndexByte(d.Namespace, '%')
	if i < 0 {
		return d.Namespace, ""
	}
	return d.Namespace[:i], d.Namespace[i+1:]
}

// Subject is what d stands for without its ports: "container:web%eth1", "dev:v0@blue".
func (d Definition) Subject() string {
	namespace, device := d.Within()
	if ref, err := namespaces.ParseReference(namespace); err == nil {
		namespace = ref
	}
	within := func(s string) string {
		if namespace != "" {
			return s + "@" + namespace
		}
		return s
	}
	inside := func(s string) string {
		if d.Device != "" {
			return s + "%" + d.Device
		}
		return s
	}
	switch k := d.Kind(); k {
	case KindContainer:
		return inside("container:" + d.Container)
	case KindProcess:
		return inside("pid:" + strconv.Itoa(d.PID))
	case KindAddress:
		return within("host:" + d.Host)
	case KindCgroup:
		return within(inside("cgroup:" + d.Cgroup))
	case KindUnit:
		return within(inside("unit:" + d.Unit))
	case KindToxiproxy:
		if t, err := ParseToxiproxy(d.Toxiproxy); err == nil { // in the one form
			return t.Text()
		}
		return "toxiproxy:" + d.Toxiproxy
	case KindInterface:
		if d.AddressIn.IsValid() {
			return within("address_in:" + d.AddressIn.String())
		}
		return within("dev:" + d.Device)
	case KindNamespace:
		d.Device = device
		return inside("netns:" + namespace)
	}
	return ""
}

// Aim is what access rules name: Subject without the one device, or the namespace, where only
// some of a container's or a group's packets are meant.
func (d Definition) Aim() string {
	switch d.Kind() {
	case KindContainer, KindProcess, KindCgroup, KindUnit:
		d.Device, d.Namespace = "", ""
	case KindNamespace:
		d.Namespace, _ = d.Within()
	}
	return d.Subject()
}

// String says d in one line; for the kinds with an inline form that form:
// "container:web%eth1:5432/tcp".
func (d Definition) String() string {
	s := d.Subject()
	if d.Kind() == KindAddress && d.Namespace == "" && len(d.Ports) > 0 && strings.Contains(d.Host, ":") {
		s = "host:[" + d.Host + "]"
	}
	if len(d.Ports) > 0 {
		s += ":" + strings.Join(portNames(d.Ports), ",")
	}
	if d.Protocol != 0 {
		s += "/" + d.Protocol.String()
	}
	return s
}

// Flows are the packets to it, as Selector.Match has them, by their ports and protocol; Whole
// when it has neither.
func (d Definition) Flows() Match {
	if len(d.Ports) == 0 && d.Protocol == 0 {
		return Match{}
	}
	m := Match{}
	for _, p := range orAny(d.Ports) {
		m.Include = append(m.Include, Flow{Protocol: uint8(d.Protocol), DestinationPorts: p})
	}
	return m
}

// Protocol is the number of an IP protocol, with a name in texts: "tcp".
type Protocol uint8

// String is "tcp", or the number of one without a name.
func (p Protocol) String() string {
	if i := slices.IndexFunc(protocolNames, func(n namedProtocol) bool { return n.number == uint8(p) }); i >= 0 {
		return protocolNames[i].name
	}
	return strconv.Itoa(int(p))
}

// MarshalText is String.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what ParseProtocol reads.
func (p *Protocol) UnmarshalText(text []byte) error {
	n, err := ParseProtocol(string(text))
	*p = Protocol(n)
	return err
}

// MarshalText is String.
func (p Ports) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what ParsePorts reads.
func (p *Ports) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePorts(string(text))
	return err
}

// portRange is how records in JSON have Ports: the text form is that of files for people, and
// says "any" for none, which is read nowhere.
type portRange struct{ First, Last uint16 }

// MarshalJSON gives both ends as numbers.
func (p Ports) MarshalJSON() ([]byte, error) { return json.Marshal(portRange(p)) }

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Ports) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*portRange)(p)) }

// Inline reports whether a text is the inline form of a target, and no name.
func Inline(text string) bool {
	kind, _, ok := strings.Cut(text, ":")
	return ok && slices.Contains(inlineKinds, Kind(kind))
}

// inlineKinds in the order in which they are told.
var inlineKinds = []Kind{KindContainer, KindProcess, KindNamespace, KindAddress, KindCgroup, KindUnit, KindToxiproxy}

// inlineForms are they in words.
const inlineForms = "container:NAME, pid:N, netns:NAME, host:NAME, cgroup:/PATH or unit:NAME, each with :PORT behind it if need be; or toxiproxy:PROXY@HOST:PORT"

// Parse reads an inline form: KIND:WHAT, of a container, a process and a namespace with %DEVICE for one of several devices, behind it :PORT, :PORT,PORT-PORT and /PROTOCOL where
// they are said. An address of IPv6 with a port stands in brackets. The error is a
// *qdisc.FieldError.
func Parse(text string) (Definition, error) {
	kind, rest, _ := strings.Cut(text, ":")
	if Kind(kind) == KindToxiproxy {
		t, err := ParseToxiproxy(rest)
		return Definition{Toxiproxy: t.String()}, err
	}
	var d Definition
	what, d2, err := cutFlow(rest)
	if err != nil {
		return Definition{}, refusal("target", text, err.Error())
	}
	d.Ports, d.Protocol = d2.Ports, d2.Protocol
	switch Kind(kind) {
	case KindContainer:
		d.Container, d.Device, _ = strings.Cut(what, "%")
		what = d.Container
	case KindProcess:
		what, d.Device, _ = strings.Cut(what, "%")
		n, err := strconv.Atoi(what)
		if err != nil || n <= 0 || strconv.Itoa(n) != what {
			return Definition{}, refusal("pid", what, wantPID)
		}
		d.PID = n
	case KindNamespace:
		d.Namespace = what
	case KindAddress:
		d.Host = strings.TrimSuffix(strings.TrimPrefix(what, "["), "]")
	case KindCgroup:
		d.Cgroup = what
	case KindUnit:
		d.Unit = what
	default:
		return Definition{}, refusal("target", text, inlineForms)
	}
	if what == "" {
		return Definition{}, refusal("target", text, inlineForms)
	}
	return d, d.Validate()
}

// cutFlow takes ports and protocol off the end of an inline form.
func cutFlow(s string) (what string, d Definition, err error) {
	if _, err := netip.ParseAddr(s); err == nil {
		return s, d, nil // its last colon is its own
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 || i+1 == len(s) || s[i+1] < '0' || s[i+1] > '9' {
		return s, d, nil
	}
	ports, protocol, hasProtocol := strings.Cut(s[i+1:], "/")
	for p := range strings.SplitSeq(ports, ",") {
		one, err := ParsePorts(p)
		if err != nil {
			if strings.ContainsAny(s[:i], "/:") {
				return s, Definition{}, nil // a cgroup may be called so: "/kubepods:cri:4bf"
			}
			return "", d, fmt.Errorf("%s behind the last ':'", wantPorts)
		}
		d.Ports = append(d.Ports, one)
	}
	if hasProtocol {
		n, err := ParseProtocol(protocol)
		if err != nil {
			return "", d, fmt.Errorf("a protocol with ports behind the '/', tcp or udp")
		}
		d.Protocol = Protocol(n)
	}
	return s[:i], d, nil
}
