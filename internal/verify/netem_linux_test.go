package verify

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/netem"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

// TestNetem verifies what the kernel's own netem does on the root of a wire's device.
func TestNetem(t *testing.T) {
	testenv.Netem(t)
	b, e := newBench(t), netem.New(netem.Config{})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	cases := []struct {
		name    string
		n       qdisc.Netem
		packets int
		want    Verdict
		reason  string
	}{
		{"loss", qdisc.Netem{Loss: 20}, 10_000, Pass, "2 checks hold"},
		{"loss of all", qdisc.Netem{Loss: 100}, 1000, Pass, ""},
		{"correlated loss", qdisc.Netem{Loss: 20, LossCorrelation: 25}, 3000, Pass, ""},
		{"bursts", qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10}}, 10_000, Pass, ""},
		{"4 states", qdisc.Netem{LossState: qdisc.LossState{P13: 2, P31: 10, P32: 20, P23: 40, P14: 1}}, 5000, Pass, ""},
		{"marks", qdisc.Netem{Loss: 20, ECN: true}, 3000, Pass, ""},
		{"delay", qdisc.Netem{Delay: 50 * msec}, 2000, Pass, ""},
		{"jitter", qdisc.Netem{Delay: 80 * msec, Jitter: 20 * msec, Distribution: qdisc.Normal}, 5000, Pass, ""},
		{"reorder", qdisc.Netem{Delay: 300 * msec, Reorder: 25}, 3000, Pass, ""},
		{"duplicate", qdisc.Netem{Duplicate: 5}, 3000, Pass, ""},
		{"corrupt", qdisc.Netem{Corrupt: 5}, 3000, Pass, ""},
		{"rate", qdisc.Netem{Rate: 250_000}, 2000, Pass, ""},
		{"overflow", qdisc.Netem{Delay: 100 * msec, Limit: 20}, 2000, Fail, "overflow: a full queue dropped"},
		{"overflow and loss", qdisc.Netem{Delay: 100 * msec, Limit: 20, Loss: 5}, 2000, Fail, "overflow: "},
	}
	for _, p := range []qdisc.Percent{.1, 1, 5, 50} {
		if long() {
			cases = append(cases, cases[0])
			c := &cases[len(cases)-1]
			c.name, c.n.Loss = "loss "+p.String(), p
		}
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			r := verifyOn(t, e, b.to, b.toServer(), tt.n, Options{Packets: scale(tt.name, tt.packets), Rate: 3000}, tt.want)
			if !strings.Contains(r.Reason, tt.reason) {
				t.Errorf("%s, want %s", r.Reason, tt.reason)
			}
		})
	}
}

// TestNetemOnOthersDevices verifies faults on devices that are not the engine's own,
// where packets take a way round.
func TestNetemOnOthersDevices(t *testing.T) {
	testenv.Netem(t)
	b, e := newBench(t), netem.New(netem.Config{State: t.TempDir()})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, tt := range map[string]struct {
		at    target.Place
		match target.Match
	}{
		"egress":   {b.at(t, b.client, "eth0", target.Egress), flowTo(unix.IPPROTO_UDP, "203.0.113.0/24", target.Port(8000))},
		"ingress":  {b.at(t, b.server, "eth0", target.Ingress), service(serverAddress)},
		"loopback": {b.at(t, b.server, "lo", target.Egress), flowTo(unix.IPPROTO_TCP, "127.0.0.1/32", target.Port(servicePort))},
	} {
		t.Run(name, func(t *testing.T) {
			p := tt.at
			p.Owned, p.Match = false, tt.match
			for _, n := range []qdisc.Netem{{Loss: 20}, {Delay: 50 * msec, Corrupt: 5}} {
				verifyOn(t, e, p, nil, n, Options{Packets: 2000, Rate: 2000}, Pass)
			}
			if err := e.Clear(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
	}
}
