package target

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strings"

	"netemd/namespaces"
	"netemd/qdisc"
)

// Limits of the words of a Definition, in bytes.
const (
	// MaxName is how long a target's name may be, and MaxText an inline form.
	MaxName = 64
	MaxText = 512
	// maxReference bounds what names a container or a unit.
	maxReference = 255
)

const wantPID = "the number of a process, 1 or more"

func refusal(field, value, want string) error {
	return &qdisc.FieldError{Field: field, Value: value, Want: want}
}

// CheckName returns a *qdisc.FieldError for what no target is called: a name has letters,
// digits, '-', '_', '.' and '/', at most MaxName, and no "..".
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || strings.Contains(name, "..") || strings.ContainsFunc(name, notInName) {
		return refusal("target", name, fmt.Sprintf("a target's name: letters, digits, '-', '_', '.' and '/', at most %d; or %s", MaxName, inlineForms))
	}
	return nil
}

// CheckText is CheckName of a name, and reads an inline form.
func CheckText(text string) error {
	if !Inline(text) {
		return CheckName(text)
	}
	if len(text) > MaxText {
		return refusal("target", text[:MaxName]+"...", fmt.Sprintf("at most %d bytes", MaxText))
	}
	_, err := Parse(text)
	return err
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./", r)
}

// Validate returns everything that is wrong with d, each as a *qdisc.FieldError whose field
// is the key in a file. It looks nothing up.
func (d Definition) Validate() error {
	v := validation{}
	if d.Name != "" {
		if err := CheckName(d.Name); err != nil || strings.Contains(d.Name, "/") {
			v.refuse("name", d.Name, fmt.Sprintf("a name of letters, digits, '-', '_' and '.', at most %d", MaxName))
		}
	}
	k := d.Kind()
	if k == "" {
		v.errs = append(v.errs, &qdisc.FieldError{Field: "target", Why: "stands for nothing", Want: "one of container, pid, host, cgroup, unit, toxiproxy, device, address_in and netns"})
	}
	v.together(d, k)
	v.subject(d)
	v.ports("port", d.Ports, uint8(d.Protocol))
	return errors.Join(v.errs...)
}

// beside says which keys may stand beside that of a kind.
var beside = map[Kind]string{
	KindContainer: "device", KindProcess: "device", KindAddress: "netns", KindCgroup: "device netns", KindUnit: "device netns",
	KindInterface: "device address_in netns", KindNamespace: "netns",
}

// together refuses keys that say two things at once.
func (v *validation) together(d Definition, k Kind) {
	if k == "" {
		return
	}
	for _, key := range []struct {
		name string
		own  Kind
		said bool
	}{
		{"container", KindContainer, d.Container != ""}, {"pid", KindProcess, d.PID != 0}, {"host", KindAddress, d.Host != ""},
		{"cgroup", KindCgroup, d.Cgroup != ""}, {"unit", KindUnit, d.Unit != ""}, {"toxiproxy", KindToxiproxy, d.Toxiproxy != ""}, {"address_in", "", d.AddressIn.IsValid()},
		{"device", "", d.Device != ""}, {"netns", "", d.Namespace != ""},
	} {
		if key.said && key.own != k && !strings.Contains(" "+beside[k]+" ", " "+key.name+" ") {
			v.refuse(key.name, "", fmt.Sprintf("nothing beside %s: a target stands for one thing", k))
		}
	}
	if d.Device != "" && d.AddressIn.IsValid() {
		v.refuse("address_in", d.AddressIn.String(), "nothing beside device: the one says what the other looks for")
	}
}

// subject looks at each word by itself.
func (v *validation) subject(d Definition) {
	if c := d.Container; c != "" && !isReference(c) {
		v.refuse("container", c, "a container's name or the beginning of its id: letters, digits, '_', '.' and '-'")
	}
	if d.PID < 0 {
		v.refuse("pid", fmt.Sprint(d.PID), wantPID)
	}
	if h := d.Host; h != "" {
		v.host(h)
	}
	if c := d.Cgroup; c != "" && (c == "/" || !path.IsAbs(c) || path.Clean(c) != c || len(c) > MaxText || !printable(c)) {
		v.refuse("cgroup", c, "the path of a cgroup below the root of its hierarchy, such as /payments/api, without '..'")
	}
	if u := d.Unit; u != "" && (strings.Contains(u, "/") || len(u) > maxReference || !printable(u)) {
		v.refuse("unit", u, "the name of a systemd unit, such as postgresql.service")
	}
	if t := d.Toxiproxy; t != "" {
		if _, err := ParseToxiproxy(t); err != nil {
			v.errs = append(v.errs, err)
		}
		if len(d.Ports) > 0 || d.Protocol != 0 {
			v.refuse("port", "", "nothing beside toxiproxy: a proxy has one port of its own")
		}
	}
	if p := d.AddressIn; p.IsValid() && p.Masked() != p {
		v.refuse("address_in", p.String(), fmt.Sprintf("a prefix whose host bits are zero, such as %s", p.Masked()))
	}
	if d.Device != "" {
		v.deviceAs("device", d.Device)
	}
	n, device := d.Within()
	if strings.HasSuffix(d.Namespace, "%") || device != "" {
		v.deviceAs("netns", device)
	}
	if d.Namespace != "" {
		if _, err := namespaces.ParseReference(n); err != nil || n == "" {
			v.refuse("netns", n, namespaces.WantReference)
		}
	}
}

// host refuses what no one host is: a prefix, an address with a zone, and what is neither an
// address nor a name.
func (v *validation) host(h string) {
	a, err := netip.ParseAddr(h)
	switch {
	case err == nil && (a.IsUnspecified() || a.Zone() != "" || a.IsMulticast() || a.Unmap() == broadcast):
		v.refuse("host", h, "the address of one host, without a zone")
	case err != nil && !validHost(h):
		v.refuse("host", h, "an address or a host name")
	}
}

// broadcast is every host of the link (RFC 919).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isReference reports whether s can be a container's name (Docker's RestrictedNameChars) or id.
func isReference(s string) bool {
	return len(s) <= maxReference && s[0] != '.' && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool { return r == '/' || notInName(r) })
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
