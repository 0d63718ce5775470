package stream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	toxiclient "github.com/Shopify/toxiproxy/v2/client"
	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
)

// served is a proxy with the API for clients.
func served(tb testing.TB, upstream string) (*process, *toxiclient.Client) {
	tb.Helper()
	at := freeAddress(tb)
	p := startProxy(tb, upstream, "--serve", at)
	p.clients = at
	return p, toxiclient.NewClient(at)
}

// status is that of a refusal of the API.
func status(err error) int {
	if e, ok := errors.AsType[*toxiclient.ApiError](err); ok {
		return e.Status
	}
	return 0
}

func wantStatus(tb testing.TB, what string, err error, want int) {
	tb.Helper()
	if got := status(err); got != want {
		tb.Errorf("%s: %v (%d), want status %d", what, err, got, want)
	}
}

func created(tb testing.TB, c *toxiclient.Client, name, upstream string) *toxiclient.Proxy {
	tb.Helper()
	p, err := c.CreateProxy(name, "127.0.0.1:0", upstream)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// An existing client of Toxiproxy does here all that it does elsewhere.
func TestClientOfToxiproxy(t *testing.T) {
	at := upstream(t, echo)
	lab, c := served(t, at)
	timed := func(listen string) time.Duration {
		t.Helper()
		start := time.Now()
		conn := dial(t, listen)
		defer conn.Close()
		if got, err := roundTrip(conn, "x"); got != "x" {
			t.Fatalf("%q, %v", got, err)
		}
		return time.Since(start)
	}
	refused := func(listen string) {
		t.Helper()
		if conn, err := net.Dial("tcp", listen); err == nil {
			conn.Close()
			t.Error("a proxy that is disabled takes connections")
		}
	}

	t.Run("version", func(t *testing.T) {
		if v, err := c.Version(); err != nil || !strings.Contains(string(v), "version") {
			t.Errorf("%s, %v", v, err)
		}
	})
	t.Run("list", func(t *testing.T) {
		all, err := c.Proxies()
		if err != nil || len(all) != 1 || all["pg"] == nil || all["pg"].Listen != lab.address || all["pg"].Upstream != at || !all["pg"].Enabled {
			t.Errorf("%+v, %v; want the lab's proxy", all, err)
		}
	})
	t.Run("create, disable, enable, delete", func(t *testing.T) {
		p := created(t, c, "redis", at)
		timed(p.Listen)
		if _, err := c.CreateProxy("redis", "127.0.0.1:0", at); status(err) != http.StatusConflict {
			t.Errorf("the same again: %v", err)
		}
		if _, err := c.CreateProxy("", "127.0.0.1:0", at); status(err) != http.StatusBadRequest {
			t.Errorf("without a name: %v", err)
		}
		if _, err := c.CreateProxy("x", "127.0.0.1:0", ""); status(err) != http.StatusBadRequest {
			t.Errorf("without an upstream: %v", err)
		}
		if err := p.Disable(); err != nil {
			t.Fatal(err)
		}
		refused(p.Listen)
		if err := p.Enable(); err != nil {
			t.Fatal(err)
		}
		timed(p.Listen)
		again, err := c.Proxy("redis")
		if err != nil || again.Listen != p.Listen || !again.Enabled {
			t.Errorf("%+v, %v", again, err)
		}
		other := upstream(t, func(conn net.Conn) { _, _ = conn.Write([]byte("other")) })
		again.Upstream = other
		if err := again.Save(); err != nil {
			t.Fatal(err)
		}
		conn := dial(t, again.Listen)
		b := make([]byte, 5)
		if _, err := conn.Read(b); err != nil || string(b) != "other" {
			t.Errorf("%q, %v; want the new upstream", b, err)
		}
		if err := again.Delete(); err != nil {
			t.Fatal(err)
		}
		refused(p.Listen)
		_, err = c.Proxy("redis")
		wantStatus(t, "a proxy that was deleted", err, http.StatusNotFound)
	})
	t.Run("toxics", func(t *testing.T) {
		p := created(t, c, "redis", at)
		defer func() { _ = p.Delete() }()
		first, err := p.AddToxic("", "latency", "", 1, toxiclient.Attributes{"latency": 100, "jitter": 5})
		if err != nil || first.Name != "latency_downstream" || first.Stream != "downstream" {
			t.Fatalf("%+v, %v; want Toxiproxy's defaults", first, err)
		}
		if took := timed(p.Listen); took < 90*time.Millisecond {
			t.Errorf("a call took %v", took)
		}
		_, err = p.AddToxic("", "latency", "downstream", 1, nil)
		wantStatus(t, "the same again", err, http.StatusConflict)
		_, err = p.AddToxic("", "frob", "downstream", 1, nil)
		wantStatus(t, "an unknown type", err, http.StatusBadRequest)
		_, err = p.AddToxic("", "latency", "sideways", 1, nil)
		wantStatus(t, "an unknown stream", err, http.StatusBadRequest)
		_, err = p.AddToxic("", "latency", "upstream", 1, toxiclient.Attributes{"latency": "much"})
		wantStatus(t, "a wrong attribute", err, http.StatusBadRequest)
		if _, err := p.AddToxic("cut", "limit_data", "upstream", 0.5, toxiclient.Attributes{"bytes": 100}); err != nil {
			t.Fatal(err)
		}
		changed, err := p.UpdateToxic("latency_downstream", 0.25, toxiclient.Attributes{"latency": 1})
		if err != nil || changed.Toxicity != 0.25 || changed.Attributes["latency"] != float64(1) || changed.Attributes["jitter"] != float64(5) {
			t.Errorf("%+v, %v; want the jitter kept", changed, err)
		}
		toxics, err := p.Toxics()
		if err != nil || len(toxics) != 2 {
			t.Errorf("%+v, %v", toxics, err)
		}
		if err := p.RemoveToxic("latency_downstream"); err != nil {
			t.Error(err)
		}
		wantStatus(t, "removing it again", p.RemoveToxic("latency_downstream"), http.StatusNotFound)
		_, err = p.UpdateToxic("latency_downstream", 1, nil)
		wantStatus(t, "changing it", err, http.StatusNotFound)
	})
	t.Run("populate and reset", func(t *testing.T) {
		wish := []toxiclient.Proxy{
			{Name: "one", Listen: "127.0.0.1:0", Upstream: at, Enabled: true},
			{Name: "two", Listen: "127.0.0.1:0", Upstream: at, Enabled: true},
		}
		made, err := c.Populate(wish)
		if err != nil || len(made) != 2 {
			t.Fatalf("%+v, %v", made, err)
		}
		wish[0].Listen, wish[1].Listen = made[0].Listen, made[1].Listen
		if again, err := c.Populate(wish); err != nil || len(again) != 2 || again[0].Listen != made[0].Listen {
			t.Errorf("the same again: %+v, %v", again, err)
		}
		_, err = c.Populate([]toxiclient.Proxy{{Name: "three"}})
		wantStatus(t, "without an upstream", err, http.StatusBadRequest)
		if _, err := made[0].AddToxic("", "timeout", "", 1, toxiclient.Attributes{"timeout": 0}); err != nil {
			t.Fatal(err)
		}
		two, err := c.Proxy("two") // a populated one cannot be saved with this client
		if err != nil {
			t.Fatal(err)
		}
		if err := two.Disable(); err != nil {
			t.Fatal(err)
		}
		if err := c.ResetState(); err != nil {
			t.Fatal(err)
		}
		for _, p := range made {
			now, err := c.Proxy(p.Name)
			if err != nil || !now.Enabled || len(now.ActiveToxics) > 0 {
				t.Errorf("%+v, %v; want it reset", now, err)
			}
			timed(p.Listen)
			if err := now.Delete(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("browsers", func(t *testing.T) {
		request, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+lab.clients+"/reset", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("User-Agent", "Mozilla/5.0")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s, want 403", answer.Status)
		}
	})
}

// Neither side destroys what the other did on one proxy.
func TestClientsAndFaults(t *testing.T) {
	p, c := served(t, upstream(t, echo))
	proxy, err := c.Proxy("pg")
	if err != nil {
		t.Fatal(err)
	}
	toxics := func(want ...string) {
		t.Helper()
		ts, err := proxy.Toxics()
		var got []string
		for _, x := range ts {
			got = append(got, x.Name)
		}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Fatalf("toxics (-want +got): %s\n%v", d, err)
		}
	}
	if _, err := proxy.AddToxic("", "latency", "", 1, toxiclient.Attributes{"latency": 1}); err != nil {
		t.Fatal(err)
	}
	// The same kind and side: two toxics, one after the other.
	set(t, p, latency)
	toxics("latency_downstream", "netemd-fault-latency_downstream")
	wantToxics(t, p, latency.Normalize())
	if _, err := proxy.AddToxic("", "slicer", "", 1, toxiclient.Attributes{"average_size": 9}); err != nil {
		t.Fatal(err)
	}
	set(t, p, fault.Toxic{Kind: fault.Bandwidth, Rate: 1000})
	toxics("latency_downstream", "slicer_downstream", "netemd-fault-bandwidth_downstream")

	_, err = proxy.UpdateToxic("netemd-fault-bandwidth_downstream", 0, nil)
	wantStatus(t, "changing a fault", err, http.StatusConflict)
	wantStatus(t, "removing a fault", proxy.RemoveToxic("netemd-fault-bandwidth_downstream"), http.StatusConflict)
	_, err = proxy.AddToxic("netemd-fault-x", "latency", "", 1, nil)
	wantStatus(t, "a name of faults", err, http.StatusConflict)
	wantStatus(t, "reset", c.ResetState(), http.StatusConflict)
	wantStatus(t, "disable", proxy.Disable(), http.StatusConflict)
	wantStatus(t, "delete", proxy.Delete(), http.StatusConflict)
	_, err = c.Populate([]toxiclient.Proxy{{Name: "pg", Listen: "127.0.0.1:1", Upstream: "127.0.0.1:2"}})
	wantStatus(t, "another in its place", err, http.StatusConflict)
	if same, err := c.Populate([]toxiclient.Proxy{{Name: "pg", Listen: p.address, Upstream: proxy.Upstream}}); err != nil || len(same) != 1 {
		t.Errorf("populate with the same: %+v, %v", same, err)
	}
	wantToxics(t, p, fault.Toxic{Kind: fault.Bandwidth, Rate: 1000}.Normalize())
	if err := proxy.RemoveToxic("slicer_downstream"); err != nil {
		t.Error(err)
	}
	set(t, p, fault.Toxic{Kind: fault.Down})
	toxics("latency_downstream")
	wantStatus(t, "enabling through a down", proxy.Enable(), http.StatusConflict)
	wantToxics(t, p, fault.Toxic{Kind: fault.Down})
	set(t, p)
	toxics("latency_downstream")
	wantToxics(t, p)

	// Without a fault the client may.
	if err := proxy.Disable(); err != nil {
		t.Fatal(err)
	}
	err = New(Config{}).Set(context.Background(), p.socket, []fault.Toxic{latency}, soon())
	if !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "has disabled it") {
		t.Errorf("a fault through a proxy that is disabled: %v, want a conflict", err)
	}
	set(t, p)
	if now, err := c.Proxy("pg"); err != nil || now.Enabled {
		t.Errorf("%+v, %v; want it still disabled", now, err)
	}
	if err := c.ResetState(); err != nil {
		t.Error(err)
	}
	toxics()
	wantStatus(t, "delete of the lab's", proxy.Delete(), http.StatusConflict)
	if err := cleared(p); err != nil {
		t.Error(err)
	}
}

// By a client of the embedded one: the call is answered, and the API lives on.
func TestClientsCallDoesNotHang(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*toxiclient.Client, *toxiclient.Proxy) error{
		"remove": func(_ *toxiclient.Client, p *toxiclient.Proxy) error { return p.RemoveToxic("latency_downstream") },
		"remove the first of two": func(_ *toxiclient.Client, p *toxiclient.Proxy) error {
			if _, err := p.AddToxic("", "timeout", "", 1, toxiclient.Attributes{"timeout": 0}); err != nil {
				return err
			}
			return p.RemoveToxic("latency_downstream")
		},
		"reset": func(c *toxiclient.Client, _ *toxiclient.Proxy) error { return c.ResetState() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var load flood
			p, c := served(t, upstream(t, load.serve))
			proxy, err := c.Proxy("pg")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := proxy.AddToxic("", "latency", "", 1, toxiclient.Attributes{"latency": 50}); err != nil {
				t.Fatal(err)
			}
			conn := dial(t, p.address).(*net.TCPConn)
			_ = conn.SetReadBuffer(4096)
			load.full(t)
			start := time.Now()
			if err := act(c, proxy); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			t.Logf("answered after %v", took)
			if took > 3*hangs+5*time.Second {
				t.Errorf("it took %v", took)
			}
			ts, err := proxy.Toxics()
			for _, x := range ts {
				if x.Type == "latency" {
					t.Error("the toxic is still there")
				}
			}
			if err != nil {
				t.Error(err)
			}
			set(t, p, latency)
			set(t, p)
		})
	}
}
