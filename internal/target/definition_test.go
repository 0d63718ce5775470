package target

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/qdisc"
)

func TestParse(t *testing.T) {
	port := []Ports{Port(5432)}
	for text, want := range map[string]Definition{
		"container:web":                    {Container: "web"},
		"container:web:5432":               {Container: "web", Ports: port},
		"container:web:5432/tcp":           {Container: "web", Ports: port, Protocol: tcp},
		"container:web:80,8000-8100":       {Container: "web", Ports: []Ports{Port(80), {8000, 8100}}},
		"container:web%eth1:5432":          {Container: "web", Device: "eth1", Ports: port},
		"pid:4711%eth1":                    {PID: 4711, Device: "eth1"},
		"pid:4711":                         {PID: 4711},
		"pid:4711:5432":                    {PID: 4711, Ports: port},
		"netns:blue":                       {Namespace: "blue"},
		"netns:blue:5432":                  {Namespace: "blue", Ports: port},
		"netns:blue%v0":                    {Namespace: "blue%v0"},
		"netns:/run/x/ab12%v0:5432":        {Namespace: "/run/x/ab12%v0", Ports: port},
		"netns:/proc/4711/ns/net":          {Namespace: "/proc/4711/ns/net"},
		"netns:/run/x/ab12:5432":           {Namespace: "/run/x/ab12", Ports: port},
		"host:db.example":                  {Host: "db.example"},
		"host:db.example:5432":             {Host: "db.example", Ports: port},
		"host:192.0.2.1:5432":              {Host: "192.0.2.1", Ports: port},
		"host:2001:db8::1":                 {Host: "2001:db8::1"},
		"host:[2001:db8::1]:5432":          {Host: "2001:db8::1", Ports: port},
		"cgroup:/system.slice/a@b.service": {Cgroup: "/system.slice/a@b.service"},
		"cgroup:/a:5432":                   {Cgroup: "/a", Ports: port},
		"cgroup:/k.slice:cri:4bf":          {Cgroup: "/k.slice:cri:4bf"},
		"unit:postgresql.service:5432":     {Unit: "postgresql.service", Ports: port},
		"toxiproxy:redis@127.0.0.1:8474":   {Toxiproxy: "redis@127.0.0.1:8474"},
		"toxiproxy:redis@http://[::1]/":    {Toxiproxy: "redis@[::1]:8474"},
		"toxiproxy:redis@unix:///run/t.s":  {Toxiproxy: "redis@unix:/run/t.s"},
		"toxiproxy:127.0.0.1:9=db:5432@h":  {Toxiproxy: "127.0.0.1:9=db:5432@h:8474"},
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		again, err := Parse(got.String())
		if diff := cmp.Diff(got, again, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || err != nil {
			t.Errorf("%s is said as %s, which reads otherwise: %v %s", text, got, err, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"container:":                   "container:NAME, pid:N",
		"container::80":                "container:NAME, pid:N",
		"container:-x":                 "a container's name",
		"container:a b":                "a container's name",
		"container:web:0":              "a port from 1 to 65535",
		"container:web:70000":          "a port from 1 to 65535",
		"container:web:80/xx":          "a protocol with ports",
		"container:w:80/icmp":          "icmp has no ports",
		"pid:0":                        "the number of a process",
		"pid:04":                       "the number of a process",
		"pid:-1":                       "the number of a process",
		"netns:../x":                   "the name of a network namespace",
		"netns:/proc/self/ns":          "the name of a network namespace",
		"host:0.0.0.0":                 "the address of one host",
		"host:255.255.255.255":         "the address of one host",
		"host:fe80::1%eth0":            "the address of one host",
		"host:10.0.0.0/8":              "an address or a host name",
		"cgroup:a":                     "the path of a cgroup",
		"cgroup:/a/../b":               "the path of a cgroup",
		"cgroup:/":                     "the path of a cgroup",
		"unit:a/b":                     "the name of a systemd unit",
		"toxiproxy:redis":              "toxiproxy:PROXY@HOST:PORT",
		"toxiproxy:@h:1":               "toxiproxy:PROXY@HOST:PORT",
		"toxiproxy:a/b@h:1":            "the name of a proxy",
		"toxiproxy:..@h:1":             "the name of a proxy",
		"toxiproxy:a@https://h:1":      "the address of a Toxiproxy's API",
		"toxiproxy:a@h:1/x":            "the address of a Toxiproxy's API",
		"toxiproxy:a@u:p@h:1":          "the address of a Toxiproxy's API",
		"toxiproxy:a@h:0":              "the address of a Toxiproxy's API",
		"toxiproxy:a@unix:run/x":       "the address of a Toxiproxy's API",
		"toxiproxy:a@unix:/run/../x":   "the address of a Toxiproxy's API",
		"toxiproxy:127.0.0.1:0=db:1@h": "an address with a port",
		"toxiproxy:localhost:1=db:1@h": "an address with a port",
		"toxiproxy:127.0.0.1:1=db@h":   "a host with a port",
		"vm:web":                       "container:NAME, pid:N",
	} {
		_, err := Parse(text)
		if e, ok := errors.AsType[*qdisc.FieldError](err); !ok || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestDefinitionValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		d     Definition
		field string
	}{
		"nothing":         {Definition{Name: "a"}, "target"},
		"two":             {Definition{Container: "a", Host: "b"}, "host"},
		"name":            {Definition{Name: "a/b", PID: 1}, "name"},
		"inline name":     {Definition{Name: "pid:1", PID: 1}, "name"},
		"device":          {Definition{Device: "a/b"}, "device"},
		"both":            {Definition{Device: "a", AddressIn: netip.MustParsePrefix("10.0.0.0/8")}, "address_in"},
		"host bits":       {Definition{AddressIn: netip.MustParsePrefix("10.0.0.1/8")}, "address_in"},
		"netns beside":    {Definition{Container: "a", Namespace: "b"}, "netns"},
		"ports of icmp":   {Definition{Container: "a", Protocol: 1, Ports: []Ports{Port(1)}}, "port"},
		"fine":            {Definition{Name: "a", Container: "a", Device: "eth1"}, ""},
		"fine, namespace": {Definition{Device: "v0", Namespace: "pid:4711"}, ""},
		"fine, host":      {Definition{Host: "a", Namespace: "b"}, ""},
		"fine, alone":     {Definition{Namespace: "b"}, ""},
	} {
		err := tt.d.Validate()
		e, ok := errors.AsType[*qdisc.FieldError](err)
		if ok != (tt.field != "") || ok && e.Field != tt.field {
			t.Errorf("%s: %v, want field %q", name, err, tt.field)
		}
	}
}

func TestSubject(t *testing.T) {
	for want, d := range map[string]Definition{
		"container:web":              {Container: "web", Ports: []Ports{Port(1)}},
		"container:web%eth1":         {Container: "web", Device: "eth1"},
		"dev:v0@blue":                {Device: "v0", Namespace: "/run/netns/blue"},
		"dev:v0@/proc/4711/ns/net":   {Device: "v0", Namespace: "pid:4711"},
		"address_in:10.0.0.0/8@blue": {AddressIn: netip.MustParsePrefix("10.0.0.0/8"), Namespace: "blue"},
		"netns:blue":                 {Namespace: "blue"},
		"host:a@blue":                {Host: "a", Namespace: "blue"},
	} {
		if got := d.Subject(); got != want {
			t.Errorf("%+v: %s, want %s", d, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"container:web:5432/tcp", "host:[::1]:80", "pid:1", "cgroup:/a:b:1-2,3", "netns:/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(d.String())
		if err != nil || again.String() != d.String() {
			t.Errorf("%q is said as %q, which reads as %q: %v", s, d, again, err)
		}
	})
}

// Records have ports as they had before there was a text form, also none.
func TestPortsInRecords(t *testing.T) {
	for want, p := range map[string]Ports{`{"First":0,"Last":0}`: {}, `{"First":80,"Last":90}`: {80, 90}} {
		text, err := json.Marshal(p)
		var back Ports
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || string(text) != want || back != p {
			t.Errorf("%v: %s, %v, %v, want %s", p, text, back, err, want)
		}
	}
}
