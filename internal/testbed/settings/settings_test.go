package settings

import (
	"net/netip"
	"strings"
	"testing"

	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// TestHedges: calls that may change something are hedged with an idempotency key only, also
// where their method is that of the request, which nobody knows yet.
func TestHedges(t *testing.T) {
	for upstream, ok := range map[string]bool{
		"{at: 'b:80', policy: hedged}":               false,
		"{at: 'b:80', policy: hedged, method: POST}": false,
		"{at: 'b:80', policy: each, method: POST}":   false,
		"{at: 'b:80', policy: hedged, method: GET}":  true,
		"{at: 'b:80', policy: keyed}":                true,
		"{at: 'b:80', policy: keyed, method: POST}":  true,
		"{at: 'b:80', policy: hedge}":                false,
	} {
		_, err := Parse([]byte(`
upstreams: {u: ` + upstream + `}
policies:
  hedged: {hedge: {delay: 10ms}}
  keyed: {hedge: {delay: 10ms}, idempotency: {key: per_call}}
  each: {hedge: {delay: 10ms}, idempotency: {key: per_attempt}}
`))
		mistakes, _ := strictyaml.Of(err)
		switch {
		case ok && err != nil:
			t.Errorf("%s: %v", upstream, err)
		case !ok && (len(mistakes) != 1 || mistakes[0].Key != "upstreams.u.policy" || !strings.Contains(err.Error(), "method: GET")):
			t.Errorf("%s: %v", upstream, err)
		}
	}
}

// TestMistakes: everything that is wrong is told at once, with its key.
func TestMistakes(t *testing.T) {
	_, err := Parse([]byte("{work: 2h, queue: 3, pool: 20000, pool_wait: -1s, status: 99, upstreams: {u: {at: nowhere, balance: any, route: x, eject: 2m, policy: nobody}}}"))
	mistakes, _ := strictyaml.Of(err)
	got := map[string]bool{}
	for _, m := range mistakes {
		got[m.Key] = true
	}
	for _, key := range []string{
		"work", "queue", "pool", "pool_wait", "status", "upstreams.u.at[0]", "upstreams.u.balance", "upstreams.u.route", "upstreams.u.eject", "upstreams.u.policy",
	} {
		if !got[key] {
			t.Errorf("nothing is said of %s: %v", key, err)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("also %v: %v", got, err)
	}
}

// TestResolve: nodes become addresses, and all the rest stays.
func TestResolve(t *testing.T) {
	const text = "{work: 20ms, workers: 2, queue: 5, pool: 3, pool_wait: 1s, upstreams: {u: {at: ['a:80', 'b:80'], policy: twice}}, policies: {twice: {retry: {max_attempts: 2}}}}"
	out, err := Resolve([]byte(text), func(at string) (netip.AddrPort, error) {
		if at == "a:80" {
			return netip.MustParseAddrPort("10.0.0.1:80"), nil
		}
		return netip.MustParseAddrPort("10.0.0.2:80"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before, _ := Parse([]byte(text))
	after, err := Parse(out)
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	at := after.Upstreams.Get("u").At
	if len(at) != 2 || at[0] != "10.0.0.1:80" || at[1] != "10.0.0.2:80" {
		t.Errorf("at %v", at)
	}
	if after.Work != before.Work || after.Workers != 2 || after.Queue != 5 || after.Pool != 3 || after.PoolWait != before.PoolWait || after.Uses["u"].Retry.MaxAttempts != 2 {
		t.Errorf("%+v of %+v", after, before)
	}
	_, err = Resolve([]byte(text), func(at string) (netip.AddrPort, error) {
		return netip.AddrPort{}, &qdisc.FieldError{Value: at, Want: "a node of the lab"}
	})
	if err == nil || !strings.Contains(err.Error(), "upstreams.u.at[1]") {
		t.Errorf("%v", err)
	}
}
