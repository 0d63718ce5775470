package agent

import (
	"errors"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/verify"
	"netemd/qdisc"
)

func TestVerify(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	s := &target.Selector{Namespace: a, Device: "v0", Protocol: 17, Peers: []string{"10.78.0.2"}, PeerPorts: []target.Ports{target.Port(5001)}}
	f := apply(t, c, fault.Spec{Selector: s, Packet: &qdisc.Netem{Loss: 20}})
	told := 0
	o := verify.Options{Packets: 2000, Rate: 2000}
	got, err := c.Verify(t.Context(), f.ID, o, func(sent, packets int) {
		if sent > packets || packets != o.Packets {
			t.Errorf("progress %d of %d", sent, packets)
		}
		told++
	})
	if err != nil {
		t.Fatal(err)
	}
	// A sound fault fails a check at the judge's own level only.
	if got.Verdict != verify.Pass || len(got.Places) != 1 || got.Places[0].Sent != o.Packets {
		t.Errorf("%+v, want a pass of %d packets", got, o.Packets)
	}
	if told < 2 || told > 6 {
		t.Errorf("progress was told %d times in about a second", told)
	}

	ended := make(chan error, 1)
	go func() {
		time.Sleep(300 * time.Millisecond)
		_, err := c.Clear(t.Context(), fault.Selector{ID: f.ID})
		ended <- err
	}()
	got, err = c.Verify(t.Context(), f.ID, o, nil)
	if err := errors.Join(err, <-ended); err != nil || got.Verdict != verify.Inconclusive || got.Reason != "fault "+f.ID+" ended while it was verified" {
		t.Errorf("a fault that ends meanwhile: %+v, %v", got, err)
	}
	if _, err := c.Verify(t.Context(), f.ID, o, nil); err == nil {
		t.Error("a fault that has ended was verified")
	}
	if _, err := c.Verify(t.Context(), f.ID, verify.Options{Packets: 5}, nil); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("5 packets: %v, want invalid", err)
	}
}
