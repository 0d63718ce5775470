package stream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	toxiclient "github.com/Shopify/toxiproxy/v2/client"

	"netemd/internal/fault"
)

// raw makes a call that no client library would.
func raw(tb testing.TB, p *process, method, path, body string) (status int, answer string) {
	tb.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, "http://"+p.clients+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return response.StatusCode, string(b)
}

// A client that does not read its answer holds up nobody.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	at := upstream(t, echo)
	p, c := served(t, at)
	redis := created(t, c, "redis", at)
	one := fmt.Sprintf(`{"name":"redis","listen":%q,"upstream":%q}`, redis.Listen, at)
	body := "[" + strings.Repeat(one+",", 10_000) + one + "]"
	deaf, err := net.Dial("tcp", p.clients)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	if err := deaf.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	go func() { // many times what the buffers between the two take, which are 4 MiB at most
		for range 20 {
			if _, err := fmt.Fprintf(deaf, "POST /populate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				return
			}
		}
	}()
	// It goes on until the server's answers are stuck; from then on each call would wait.
	var slowest time.Duration
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		start := time.Now()
		if _, err := redis.AddToxic("", "latency", "", 1, toxiclient.Attributes{"latency": 1}); err != nil {
			t.Fatal(err)
		}
		if err := redis.RemoveToxic("latency_downstream"); err != nil {
			t.Fatal(err)
		}
		set(t, p, latency)
		set(t, p)
		slowest = max(slowest, time.Since(start))
	}
	t.Logf("the slowest four calls took %v", slowest)
	if slowest > 3*time.Second {
		t.Errorf("calls took %v beside a client that does not read", slowest)
	}
}

// What a client says is understood here as Toxiproxy understands it, or else refused.
func TestClientsWordsAreNotTwofold(t *testing.T) {
	p, c := served(t, upstream(t, echo))
	set(t, p, latency)
	name := "netemd-fault-latency_downstream"
	populate := `[{"name":"pg","listen":"127.0.0.1:0","upstream":"127.0.0.1:2"}]`
	for what, tt := range map[string]struct {
		method, path, body string
		want               int
	}{
		"trailing text behind a disable":          {"POST", "/proxies/pg", `{"enabled":false} x`, 400},
		"a second value behind a disable":         {"PATCH", "/proxies/pg", `{"enabled":false}{}`, 400},
		"trailing text behind another upstream":   {"POST", "/proxies/pg", `{"upstream":"127.0.0.1:9"}]`, 400},
		"trailing text behind a name of faults":   {"POST", "/proxies/pg/toxics", `{"name":"netemd-fault-x","type":"noop"} x`, 400},
		"trailing text behind a populate":         {"POST", "/populate", populate + ` x`, 400},
		"trailing text behind a new proxy":        {"POST", "/proxies", `{"name":"x","listen":"127.0.0.1:0","upstream":"127.0.0.1:2"} x`, 400},
		"a populate that replaces":                {"POST", "/populate", populate, 409},
		"white space alone behind a disable":      {"POST", "/proxies/pg", "{\"enabled\":false} \n", 409},
		"a key twice":                             {"POST", "/proxies/pg", `{"enabled":true,"ENABLED":false}`, 409},
		"no JSON":                                 {"POST", "/proxies/pg", `enabled`, 400},
		"nothing":                                 {"POST", "/proxies/pg", ``, 400},
		"a wrong type":                            {"POST", "/proxies/pg", `{"enabled":false,"listen":7}`, 400},
		"a removal with a slash in other words":   {"DELETE", "/proxies/pg%2Ftoxics%2F" + name, "", 409},
		"a toxic with a slash in other words":     {"POST", "/proxies/pg%2Ftoxics", `{"name":"netemd-fault-x","type":"noop"}`, 409},
		"a change with a letter in other words":   {"POST", "/proxies/p%67/toxics/" + name, `{"toxicity":0}`, 409},
		"a change with a toxic in other words":    {"PATCH", "/proxies/pg%2Ftoxics%2F" + name, `{"toxicity":0}`, 409},
		"a deletion with a letter in other words": {"DELETE", "/proxies/%70g", "", 409},
	} {
		if got, answer := raw(t, p, tt.method, tt.path, tt.body); got != tt.want || !strings.Contains(answer, `"error"`) {
			t.Errorf("%s: %d %s, want %d in Toxiproxy's form", what, got, strings.TrimSpace(answer), tt.want)
		}
	}
	wantToxics(t, p, latency.Normalize())
	now, err := c.Proxy("pg")
	if err != nil || !now.Enabled || len(now.ActiveToxics) != 1 || now.ActiveToxics[0].Toxicity != 1 {
		t.Errorf("%+v, %v; want the fault alone", now, err)
	}
}

// Reading hangs no longer than changing, below a proxy that hangs.
func TestClientsLookDoesNotHang(t *testing.T) {
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
	removed := make(chan error, 1)
	go func() { removed <- proxy.RemoveToxic("latency_downstream") }()
	time.Sleep(200 * time.Millisecond) // it holds the lock of the toxics now, if it hangs
	start := time.Now()
	all, err := c.Proxies()
	took := time.Since(start)
	t.Logf("listed after %v", took)
	if err != nil || len(all) != 1 || took > 2*hangs+2*time.Second {
		t.Errorf("%+v, %v after %v; want the list", all, err, took)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
}

// A proxy that hangs below a list is answered for, and not waited for without end.
func TestLookIsBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	f := &front{native: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }), hangs: 50 * time.Millisecond}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "/proxies", &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	answer := newRecorder()
	f.look(answer, r)
	if answer.status != http.StatusServiceUnavailable || !strings.Contains(answer.body.String(), "proxy control stuck") {
		t.Errorf("%d %s", answer.status, &answer.body)
	}
}

// A client that waits for its turn is told, and does not wait without end.
func TestTurnIsBounded(t *testing.T) {
	t.Parallel()
	p := &proxy{turn: newTurn(), name: "pg"}
	p.turn.take()
	f := &front{p: p, hangs: 10 * time.Millisecond}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "/reset", &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	answer := newRecorder()
	f.locked(func(http.ResponseWriter, *http.Request, []byte) { t.Error("it went on without its turn") })(answer, r)
	if answer.status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", answer.status, &answer.body)
	}
	p.turn.give()
	done := false
	f.locked(func(http.ResponseWriter, *http.Request, []byte) { done = true })(newRecorder(), r)
	if !done || fault.Upstream == "" {
		t.Error("it was not let in")
	}
}

// TestToxicsThatToxiproxyEndsWith: what it would take, and end the process with in the middle of
// a connection, is refused, and what there was stays.
func TestToxicsThatToxiproxyEndsWith(t *testing.T) {
	t.Parallel()
	at := upstream(t, echo)
	p, c := served(t, at)
	redis := created(t, c, "redis", at)
	path := "/proxies/redis/toxics"
	for body, want := range map[string]string{
		`{"type":"bandwidth","attributes":{"rate":-1}}`:               "rate -1: want 0 to",
		`{"type":"bandwidth","attributes":{"RATE":-1}}`:               "rate -1: want 0 to",
		`{"type":"bandwidth","attributes":{"rate":-1,"latency":"x"}}`: "rate -1: want 0 to",
		`{"type":"slicer"}`: "average_size 0: want 1 to",
		`{"type":"slicer","attributes":{"average_size":10,"size_variation":100}}`:       "size_variation 100: want less than average_size, which is 10",
		`{"type":"slicer","attributes":{"average_size":10,"size_variation":10}}`:        "size_variation 10: want less than average_size, which is 10",
		`{"type":"limit_data","attributes":{"bytes":-5}}`:                               "bytes -5",
		`{"type":"latency","attributes":{"latency":-5}}`:                                "latency -5",
		`{"type":"latency","attributes":{"jitter":9223372036854775807}}`:                "jitter 9223372036854775807",
		`{"type":"timeout","attributes":{"timeout":-5}}`:                                "timeout -5",
		`{"type":"reset_peer","attributes":{"timeout":-5}}`:                             "timeout -5",
		`{"type":"slow_close","attributes":{"delay":-5}}`:                               "delay -5",
		`{"type":"netemd_drawn","attributes":{"kind":"bandwidth","inner":{"rate":-1}}}`: "rate -1: want 0 to",
	} {
		if status, answer := raw(t, p, http.MethodPost, path, body); status != http.StatusBadRequest || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %q", body, status, answer, want)
		}
	}
	if status, answer := raw(t, p, http.MethodPost, path, `{"type":"frob"}`); status != http.StatusBadRequest || !strings.Contains(answer, "invalid toxic type") {
		t.Errorf("what Toxiproxy refuses itself: %d %s", status, answer)
	}
	if _, err := redis.AddToxic("cut", "slicer", "", 1, toxiclient.Attributes{"average_size": 10, "size_variation": 5}); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"attributes":{"size_variation":10}}`:             "size_variation 10: want less than average_size, which is 10",
		`{"attributes":{"average_size":0},"toxicity":"x"}`: "average_size 0",
	} {
		if status, answer := raw(t, p, http.MethodPost, path+"/cut", body); status != http.StatusBadRequest || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %q", body, status, answer, want)
		}
	}
	if now, err := redis.Toxics(); err != nil || len(now) != 1 || now[0].Attributes["size_variation"] != 5.0 || now[0].Attributes["average_size"] != 10.0 {
		t.Errorf("%+v, %v: what was refused changed something", now, err)
	}
	if _, err := redis.UpdateToxic("cut", 1, toxiclient.Attributes{"size_variation": 9}); err != nil {
		t.Error(err)
	}
}
