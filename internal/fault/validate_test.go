package fault

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"netemd/internal/target"
	"netemd/qdisc"
)

func TestValidateSpec(t *testing.T) {
	loss := &qdisc.Netem{Loss: 20}
	device := &target.Selector{Device: "v0"}
	down := []Toxic{{Kind: Down}}
	for name, c := range map[string]struct {
		spec Spec
		want string // in the error; empty for none
	}{
		"target":               {Spec{Target: "pg", Packet: loss}, ""},
		"selector":             {Spec{Selector: device, Packet: loss, Force: []string{ForceSSH, ForceAgent, ForceDefaultRoute}, Offload: OffloadOff}, ""},
		"toxic":                {Spec{Target: "pg", Toxics: down}, ""},
		"nowhere":              {Spec{Packet: loss}, "target: want a target's name"},
		"both":                 {Spec{Target: "pg", Selector: device, Packet: loss}, `target "pg": want a target or a device, not both`},
		"toxic on a device":    {Spec{Selector: device, Toxics: down}, "target: want a target's name: toxics act on connections"},
		"bad selector":         {Spec{Selector: &target.Selector{Device: "a b"}, Packet: loss}, `dev "a b"`},
		"unknown protection":   {Spec{Target: "pg", Packet: loss, Force: []string{"yes"}}, `force "yes": want agent, ssh, default-route`},
		"unknown offload":      {Spec{Target: "pg", Packet: loss, Offload: "on"}, `offload "on": want off or nothing`},
		"offload and toxics":   {Spec{Target: "pg", Toxics: down, Offload: OffloadOff}, `offload "off": want nothing for toxics`},
		"nothing to be done":   {Spec{Target: "pg"}, "fault: want a packet impairment, a content rule or at least one toxic"},
		"everything at a time": {Spec{Packet: &qdisc.Netem{Loss: 120}, TTL: 1, Direction: "up"}, "ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, qdisc.ErrInvalid)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestTargetName(t *testing.T) {
	if got := (Spec{Target: "pg"}).TargetName(); got != "pg" {
		t.Errorf("got %q", got)
	}
	if got := (Spec{Selector: &target.Selector{Namespace: "blue", Device: "v0", PeerPorts: []target.Ports{target.Port(80)}}}).TargetName(); got != "v0@blue port 80" {
		t.Errorf("got %q", got)
	}
}

// Every place has a seed of its own, the same each time.
func TestSeed(t *testing.T) {
	if Seed(0, 1) != 0 || Seed(42, 0) != 42 {
		t.Error("no seed and the first place's are as asked")
	}
	seen := map[uint64]bool{}
	for s := range uint64(10_000) {
		other := Seed(s+1, 1)
		if other == 0 || other == s+1 || other != Seed(s+1, 1) || seen[other] {
			t.Fatalf("seed %d gives %d", s+1, other)
		}
		seen[other] = true
	}
}

func TestProtectedIsDenied(t *testing.T) {
	if !errors.Is(ErrProtected, fs.ErrPermission) {
		t.Error("a protected fault is no denied one")
	}
}
