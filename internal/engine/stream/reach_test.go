package stream

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	toxiclient "github.com/Shopify/toxiproxy/v2/client"

	"netemd/internal/fault"
	"netemd/internal/target"
)

// A name that was allowed for another address does not lead to loopback later, for who may not
// have that called; the address that is connected to decides.
func TestNamesThatTurnRound(t *testing.T) {
	reach := reachOf("192.0.2.0/24,fd00::/8")
	for name, tt := range map[string]struct {
		of   target.Toxiproxy
		at   string
		want bool
	}{
		"as allowed":               {target.Toxiproxy{API: "proxy.example:8474"}, "192.0.2.7:8474", true},
		"as allowed, IPv6":         {target.Toxiproxy{API: "proxy.example:8474"}, "[fd00::1]:8474", true},
		"turned":                   {target.Toxiproxy{API: "proxy.example:8474"}, "127.0.0.1:8474", false},
		"turned, IPv6":             {target.Toxiproxy{API: "proxy.example:8474"}, "[::1]:8474", false},
		"turned, IPv4 in IPv6":     {target.Toxiproxy{API: "proxy.example:8474"}, "[::ffff:127.0.0.1]:8474", false},
		"turned, elsewhere":        {target.Toxiproxy{API: "proxy.example:8474"}, "198.51.100.1:8474", false},
		"of a user of this host":   {target.Toxiproxy{API: "proxy.example:8474", Loopback: true}, "127.0.0.1:8474", true},
		"written as it is":         {target.Toxiproxy{API: "127.0.0.1:8474"}, "127.0.0.1:8474", true},
		"written as it is, IPv6":   {target.Toxiproxy{API: "[::1]:8474"}, "[::1]:8474", true},
		"of a user, elsewhere":     {target.Toxiproxy{API: "proxy.example:8474", Loopback: true}, "198.51.100.1:8474", false},
		"written, and not allowed": {target.Toxiproxy{API: "198.51.100.1:8474"}, "198.51.100.1:8474", false},
	} {
		if err := reach(tt.of, netip.MustParseAddrPort(tt.at)); (err == nil) != tt.want {
			t.Errorf("%s: %v, want allowed %v", name, err, tt.want)
		}
	}

	f := startForeign(t)
	theirs := f.proxy(t, "redis", upstream(t, echo))
	_, port, _ := net.SplitHostPort(f.api)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)) // what "localhost" leads to
	if err != nil {
		t.Skipf("the port is another's at 127.0.0.1: %v", err)
	}
	defer l.Close()
	asked := make(chan struct{}, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked <- struct{}{}
			c.Close()
		}
	}()
	r, _ := NewRemote(t.TempDir(), nil)
	r.Watch = nil
	turned := target.Toxiproxy{API: "localhost:" + port, Name: theirs.Name}
	err = r.Set(t.Context(), turned, []fault.Toxic{latency}, soon())
	if err == nil || !strings.Contains(err.Error(), "is a loopback address by now") || len(asked) > 0 {
		t.Errorf("%v, %d calls; want it refused, and nobody called", err, len(asked))
	}
	if err := r.clear(t.Context(), turned, r.Mark(turned), false); err == nil || len(asked) > 0 { // as the keeper does
		t.Errorf("clear: %v, %d calls", err, len(asked))
	}
	turned.Loopback = true
	if _ = r.Set(t.Context(), turned, []fault.Toxic{latency}, soon()); len(asked) == 0 {
		t.Error("a user of this host may have it called")
	}
	// The keeper is told, too.
	line, err := json.Marshal(charge{Proxy: turned})
	var c charge
	if err := json.Unmarshal(line, &c); err != nil || c.Proxy != turned {
		t.Errorf("%+v, %v", c, err)
	}
	if err != nil {
		t.Error(err)
	}
}

// A Toxiproxy with thousands of proxies is one like others.
func TestRemoteAmongThousands(t *testing.T) {
	f := startForeign(t)
	theirs := f.proxy(t, "redis", upstream(t, echo))
	many := make([]toxiclient.Proxy, 5000)
	for i := range many {
		many[i] = toxiclient.Proxy{Name: fmt.Sprintf("p%d", i), Listen: "127.0.0.1:0", Upstream: strings.Repeat("a", 250) + ".example:1"}
	}
	if _, err := f.client.Populate(many); err != nil {
		t.Fatal(err)
	}
	before := f.state(t)
	r, p := &Remote{Tag: "netemd-test"}, target.Toxiproxy{API: f.api, Name: theirs.Name}
	if err := r.Set(t.Context(), p, []fault.Toxic{latency}, soon()); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Read(t.Context(), p); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := r.Clear(t.Context(), p); err != nil {
		t.Error(err)
	}
	if err := r.Set(t.Context(), p, []fault.Toxic{latency}, soon()); err != nil {
		t.Fatal(err)
	}
	if done, err := r.Sweep(t.Context(), target.Toxiproxy{API: f.api}, nil); err != nil || len(done) != 1 {
		t.Errorf("%q, %v", done, err)
	}
	own := target.Toxiproxy{API: f.api, Listen: freeAddress(t), Upstream: theirs.Upstream}
	if err := r.Set(t.Context(), own, []fault.Toxic{latency}, soon()); err != nil {
		t.Error(err)
	}
	if err := r.Clear(t.Context(), own); err != nil {
		t.Error(err)
	}
	_, err := r.Read(t.Context(), target.Toxiproxy{API: f.api, Name: "rediss"})
	if err == nil || !strings.Contains(err.Error(), "it has 5001, such as p0, ") || len(err.Error()) > 500 {
		t.Errorf("%v, want some of the names", err)
	}
	sameState(t, "after all", before, f.state(t))
}

// What says more than any Toxiproxy is cut off, and told so.
func TestRemoteAnswerTooLong(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(zeros{}, maxAnswer+2))
	}))
	defer endless.Close()
	_, err := (&Remote{Tag: "x"}).Read(t.Context(), target.Toxiproxy{API: strings.TrimPrefix(endless.URL, "http://"), Name: "redis"})
	if err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("%v, want it said", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// hung is an API that takes connections and says nothing.
func hung(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// A Toxiproxy that hangs at its deadline holds up no other's.
func TestKeeperBesideOneThatHangs(t *testing.T) {
	t.Parallel()
	f := startForeign(t)
	f.proxy(t, "redis", upstream(t, echo))
	r, p := &Remote{Tag: "netemd-test", Limit: 4 * time.Second}, target.Toxiproxy{API: f.api, Name: "redis"}
	if err := r.Set(t.Context(), p, []fault.Toxic{latency}, soon()); err != nil {
		t.Fatal(err)
	}
	lines, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- keep(r, lines) }()
	tell := func(c charge) {
		t.Helper()
		if err := json.NewEncoder(in).Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	tell(charge{Proxy: target.Toxiproxy{API: hung(t), Name: "x"}, LeftNS: 1})
	time.Sleep(lateness + 300*time.Millisecond) // it is at that by now
	start := time.Now()
	tell(charge{Proxy: p, LeftNS: 1})
	eventually(t, 3*time.Second, func() error { return f.away(r.Tag) })
	t.Logf("the other was away after %v", time.Since(start))
	_ = in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
