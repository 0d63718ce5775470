package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
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

// One fault is verified once at a time, and four of them; who is refused is told, and
// disturbs nobody.
func TestVerificationsAtOnce(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	var ids []string
	for port := range uint16(5) {
		s := &target.Selector{Namespace: a, Device: "v0", Protocol: 17, Peers: []string{"10.78.0.2"}, PeerPorts: []target.Ports{target.Port(5001 + port)}}
		ids = append(ids, apply(t, c, fault.Spec{Selector: s, Packet: &qdisc.Netem{Loss: 20}}).ID)
	}
	o := verify.Options{Packets: 600, Rate: 400}
	results := make(chan error, maxVerifications)
	for _, id := range ids[:maxVerifications] {
		sending := make(chan bool)
		begun := sync.OnceFunc(func() { close(sending) })
		go func() {
			defer begun()
			got, err := c.Verify(t.Context(), id, o, func(int, int) { begun() })
			if err == nil && (len(got.Places) != 1 || got.Places[0].Sent != o.Packets) {
				err = fmt.Errorf("%+v, want %d packets sent", got, o.Packets)
			}
			results <- err
		}()
		<-sending
	}
	for id, want := range map[string]string{ids[4]: "verify: busy: 4 faults are being verified", ids[0]: "verify: busy: fault " + ids[0] + " is being verified already"} {
		_, err := c.Verify(t.Context(), id, o, nil)
		if !errors.Is(err, fault.ErrBusy) || !strings.HasPrefix(err.Error(), want) || fault.HintOf(err) == "" {
			t.Errorf("%v, want %q and a hint", err, want)
		}
	}
	for range maxVerifications {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Verify(t.Context(), ids[4], o, nil); err != nil {
		t.Errorf("after the others: %v", err)
	}
}
