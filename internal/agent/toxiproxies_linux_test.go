package agent

import (
	"context"
	"net"
	"testing"
	"time"

	"netemd/internal/engine/stream"
	"netemd/internal/fault"
	"netemd/internal/journal"
)

// Toxiproxies that hang are waited for at the same time.
func TestSweepBesideThoseThatHang(t *testing.T) {
	t.Parallel()
	var open []journal.Entry
	for range 4 {
		l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		open = append(open, journal.Entry{Fault: fault.Fault{Spec: fault.Spec{
			Target: "toxiproxy:redis@" + l.Addr().String(), Toxics: []fault.Toxic{{Kind: fault.Timeout}}, OwnerKey: "uid:1000",
		}}})
	}
	start := time.Now()
	done, err := sweepToxiproxies(context.Background(), Config{StateDir: t.TempDir()}, open)
	took := time.Since(start)
	if err == nil || len(done) > 0 || took > 2*stream.DefaultLimit {
		t.Errorf("%q, %v after %v; want an error after %v", done, err, took, stream.DefaultLimit)
	}
}

// A seed is refused where it would have no effect, before anybody is called.
func TestSeedForToxiproxyOfOthers(t *testing.T) {
	a := &Agent{definitions: &definitions{}}
	_, err := a.resolveSpec(t.Context(), fault.Spec{
		Target: "toxiproxy:redis@127.0.0.1:9", Toxics: []fault.Toxic{{Kind: fault.Timeout, Toxicity: 30, Seed: 7}},
	})
	if err == nil || err.Error() != stream.ErrSeed(fault.Toxic{Seed: 7}).Error() {
		t.Errorf("%v, want the seed refused", err)
	}
}

// Who is here may have loopback called by a name; a client with a certificate may not.
func TestLoopbackGoesByWhoAsks(t *testing.T) {
	a := &Agent{definitions: &definitions{}}
	for key, want := range map[string]bool{"": true, "uid:0": true, "uid:1000": true, `cert:"uid:0"`: false} {
		s := fault.Spec{Target: "toxiproxy:redis@127.0.0.1:9", Toxics: []fault.Toxic{{Kind: fault.Timeout}}, OwnerKey: key}
		found, err := a.resolveSpec(t.Context(), s)
		if found.Toxiproxy == nil || found.Toxiproxy.Loopback != want || (err == nil) != want {
			t.Errorf("%s: %+v, %v; want loopback %v", key, found.Toxiproxy, err, want)
		}
	}
}
