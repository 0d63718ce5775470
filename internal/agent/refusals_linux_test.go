package agent

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/audit"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/testenv/testca"
	"netemd/internal/wire"
	"netemd/qdisc"
)

// Who may do nothing cannot push out of the log what was done, however often he asks.
func TestRefusalsLeaveWhatWasDone(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	authority := testca.New(t)
	log := &logged{}
	_, local, address := tcp(t, authority, func(c *Config) {
		c.Log = log.logger()
		c.Settings.Audit = config.Audit{Path: path, MaxMegabytes: 1, Keep: 0}
		c.Settings.Allow = []access.Rule{{Certificates: []string{"ci"}, Verbs: []access.Verb{access.List}}}
	})
	f := apply(t, local, fault.Spec{Selector: ports(a, port(5001)), Packet: &qdisc.Netem{Loss: 1}})
	c, err := open(t, authority, address, authority.Client(t, "ci"))
	if err != nil {
		t.Fatal(err)
	}
	const calls = 600 // of 2 kB each and more in the log
	for i := range calls {
		spec := fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: 1}, RequestID: strings.Repeat("x", 2000)}
		if i%2 == 1 { // refused for its form, before anybody asks who may do it
			spec.Target = "../pg"
		}
		if _, err := c.Apply(t.Context(), spec); !errors.Is(err, fault.ErrDenied) && !errors.Is(err, qdisc.ErrInvalid) {
			t.Fatal(err)
		}
	}
	done := auditLines(t, path)
	if len(done) != 1 || done[0].Faults[0] != f.ID {
		t.Errorf("what was done: %d records, want the one of fault %s", len(done), f.ID)
	}
	refused := auditLines(t, audit.RefusedPath(path))
	if len(refused) != audit.Singly || refused[0].Actor != "certificate CN ci" || refused[0].Verb != "apply" || refused[0].Code != "PermissionDenied" || refused[1].Code != "InvalidArgument" {
		t.Errorf("%d refusals are told one by one, want %d: %+v", len(refused), audit.Singly, refused[0])
	}
	if n := strings.Count(log.String(), "call refused"); n != audit.Singly {
		t.Errorf("the log has %d refusals, want %d", n, audit.Singly)
	}
}

// Who never gets to a call is written down, too: without a good certificate, with a request
// that is too large, and on a stream that asks for what nobody may ask.
func TestRefusalsBeforeCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	authority, foreign := testca.New(t), testca.New(t)
	a, _, address := tcp(t, authority, func(c *Config) { c.Settings.Audit.Path = path })
	for _, cfg := range []*tls.Config{
		{RootCAs: authority.Pool()},
		{RootCAs: authority.Pool(), Certificates: []tls.Certificate{foreign.Client(t, "ci").Load(t)}},
	} {
		if err := raw(address, cfg); err == nil {
			t.Fatal("a client without a good certificate came in")
		}
	}
	conn := dial(t, a.cfg.Socket)
	faults, labs := netemv1.NewFaultsClient(conn), netemv1.NewLabsClient(conn)
	large := wire.ApplyRequest(fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: 1}, RequestID: strings.Repeat("x", 2<<20)})
	if _, err := faults.Apply(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large request: %v", err)
	}
	if err := hold(t.Context(), faults, &netemv1.HoldRequest{What: &netemv1.HoldRequest_Apply{Apply: large}}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large request in a stream: %v", err)
	}
	if err := labUp(t.Context(), labs, "../pg"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a lab: %v", err)
	}
	var got []audit.Record
	eventually(t, "all are written down", func() bool {
		got = auditLines(t, audit.RefusedPath(path))
		return len(got) >= 5
	})
	want := []struct{ verb, code, method, says string }{
		{"connect", "Unauthenticated", "", "didn't provide a certificate"},
		{"connect", "Unauthenticated", "", "unknown authority"},
		{"apply", "ResourceExhausted", "Faults/Apply", "larger than max"},
		{"apply", "ResourceExhausted", "Faults/Hold", "larger than max"},
		{"lab", "InvalidArgument", "Labs/Up", "want a name"},
	}
	for _, w := range want { // a client may know its answer before that is written down
		i := slices.IndexFunc(got, func(r audit.Record) bool {
			return r.Verb == w.verb && r.Code == w.code && r.Method == w.method && says(r.Error, w.says)
		})
		if i < 0 {
			t.Errorf("no record of %+v in %+v", w, got)
			continue
		}
		r := got[i]
		if r.Verb == "connect" && (r.Actor != "unknown" || r.Peer == nil || !strings.HasPrefix(r.Peer.Address, "127.0.0.1:") || r.Peer.UID != nil) || r.Verb != "connect" && r.Actor != "uid 0 (root)" {
			t.Errorf("%+v: by %s, %+v", w, r.Actor, r.Peer)
		}
	}
	if done := auditLines(t, path); len(done) != 0 {
		t.Errorf("what was done has %+v", done)
	}
}
