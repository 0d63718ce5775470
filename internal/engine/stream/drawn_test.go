package stream

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	toxiclient "github.com/Shopify/toxiproxy/v2/client"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// The share is right, and neither neighbours nor seeds hang together; bounds of five sigma.
func TestDrawnShare(t *testing.T) {
	const n, seeds, share = 1000, 200, 0.3
	within := func(what string, got, of int, p float64) {
		t.Helper()
		if off, most := math.Abs(float64(got)-p*float64(of)), 5*math.Sqrt(p*(1-p)*float64(of)); off > most {
			t.Errorf("%s: %d of %d, want %.0f +- %.0f", what, got, of, p*float64(of), most)
		}
	}
	all, pairs, crossed := 0, 0, 0
	for seed := range uint64(seeds) {
		d := &drawn{Key: "latency_downstream", Seed: seed + 1, Share: share}
		next := &drawn{Key: "latency_downstream", Seed: seed + 2, Share: share}
		other := &drawn{Key: "latency_upstream", Seed: seed + 1, Share: share}
		one, alike := 0, 0
		for i := range uint64(n) {
			c := d.chosen(i)
			if c {
				one++
			}
			if c && i%2 == 0 && d.chosen(i+1) {
				pairs++
			}
			if c && next.chosen(i) {
				crossed++
			}
			if c && other.chosen(i) {
				alike++
			}
		}
		within("of one seed", one, n, share)
		within("with another toxic of the seed", alike, n, share*share)
		all += one
	}
	within("of all", all, n*seeds, share)
	within("pairs of neighbours", pairs, n*seeds/2, share*share)
	within("with the next seed", crossed, n*seeds, share*share)
}

// What a client of the API may write into one does no harm.
func TestDrawnFromOutside(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"kind":"frob","inner":{}}`, `{"kind":"netemd_drawn","inner":{}}`, `{"kind":"netemd_drawn_buffered","inner":{}}`,
		`{"kind":"latency"}`, `{"kind":"latency","inner":7}`, `[]`,
	} {
		if err := json.Unmarshal([]byte(text), new(drawn)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	p, c := served(t, upstream(t, echo))
	proxy, err := c.Proxy("pg")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.AddToxic("x", drawnType, "", 1, toxiclient.Attributes{"kind": "frob"}); status(err) != 400 {
		t.Errorf("%v, want status 400", err)
	}
	request := `{"name":"y","type":"` + drawnType + `"}` // without attributes
	if code, answer := raw(t, p, "POST", "/proxies/pg/toxics", request); code != 200 {
		t.Errorf("%d %s", code, answer)
	}
	if got, err := roundTrip(dial(t, p.address), "x"); got != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// The same connections are touched each time, by their order; others by another seed.
func TestDrawnIsRepeatable(t *testing.T) {
	t.Parallel()
	p := startProxy(t, upstream(t, echo))
	const n = 40
	drawn := func(seed uint64, toxicity qdisc.Percent) fault.Toxic {
		return fault.Toxic{Kind: fault.Latency, Latency: 100 * time.Millisecond, Toxicity: toxicity, Seed: seed}
	}
	slow := func() bool {
		c := dial(t, p.address)
		defer c.Close()
		start := time.Now()
		if got, err := roundTrip(c, "x"); got != "x" {
			t.Errorf("%q, %v", got, err)
		}
		return time.Since(start) >= 100*time.Millisecond
	}
	course := func(toxic fault.Toxic) (slows []bool) {
		set(t, p)
		set(t, p, toxic)
		wantToxics(t, p, toxic.Normalize())
		for range n {
			slows = append(slows, slow())
		}
		return slows
	}
	first := course(drawn(7, 50))
	if again := course(drawn(7, 50)); !slices.Equal(first, again) {
		t.Errorf("seed 7 twice:\n%v\n%v", first, again)
	}
	if other := course(drawn(8, 50)); slices.Equal(first, other) {
		t.Errorf("seeds 7 and 8 chose the same of %d connections", n)
	}
	touchedOf := func(slows []bool) (k int) {
		for _, s := range slows {
			if s {
				k++
			}
		}
		return k
	}
	// Side by side nobody knows who comes when, but of as many as many are touched.
	set(t, p)
	set(t, p, drawn(7, 50))
	var touched atomic.Int64
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			if slow() {
				touched.Add(1)
			}
		})
	}
	clients.Wait()
	if want := touchedOf(first); int(touched.Load()) != want || want < 8 || want > 32 { // 20 +- 4 sigma
		t.Errorf("%d of %d were touched side by side, %d one after the other", touched.Load(), n, want)
	}
}

// Each kind does on the drawn connections what it does elsewhere, and nothing on the others.
func TestDrawnKinds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		toxic fault.Toxic
		// touched tells a connection that the toxic acts on by what its exchange came to.
		touched func(got string, took time.Duration, err error) bool
	}{
		"reset_peer": {fault.Toxic{Kind: fault.ResetPeer}, func(_ string, _ time.Duration, err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		"limit_data": {fault.Toxic{Kind: fault.LimitData, Bytes: 3}, func(got string, _ time.Duration, err error) bool {
			return got == "hel" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
		}},
		"timeout": {fault.Toxic{Kind: fault.Timeout, Timeout: 50 * time.Millisecond}, func(got string, _ time.Duration, err error) bool {
			return got == "" && errors.Is(err, io.EOF)
		}},
		"slicer": {fault.Toxic{Kind: fault.Slicer, AverageSize: 1, Delay: 20 * time.Millisecond}, func(got string, took time.Duration, err error) bool {
			return got == "hello" && took >= 80*time.Millisecond
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, upstream(t, echo))
			toxic := tt.toxic
			toxic.Toxicity, toxic.Seed = 50, 3
			d := &drawn{Key: toxic.Normalize().Key(), Seed: 3, Share: 0.5}
			set(t, p, toxic)
			wantToxics(t, p, toxic.Normalize())
			for i := range uint64(12) {
				c := dial(t, p.address)
				start := time.Now()
				got, err := roundTrip(c, "hello")
				touched := tt.touched(got, time.Since(start), err)
				if want := d.chosen(i); touched != want || !want && (got != "hello" || err != nil) {
					t.Errorf("connection %d: %q, %v; touched %v, want %v", i, got, err, touched, want)
				}
				c.Close()
			}
			set(t, p)
		})
	}
}

// With clients' toxics beside it, which interrupt it in its chain, the draw stays.
func TestDrawnBesideClients(t *testing.T) {
	p, c := served(t, upstream(t, echo))
	set(t, p, fault.Toxic{Kind: fault.LimitData, Bytes: 5, Toxicity: 50, Seed: 3})
	d := &drawn{Key: "limit_data_downstream", Seed: 3, Share: 0.5}
	proxy, err := c.Proxy("pg")
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 8 {
		conn := dial(t, p.address)
		if got, err := roundTrip(conn, "xy"); got != "xy" {
			t.Fatalf("%q, %v", got, err)
		}
		conns = append(conns, conn)
	}
	if _, err := proxy.AddToxic("", "noop", "downstream", 1, nil); err != nil {
		t.Fatal(err)
	}
	for i, conn := range conns {
		got, err := roundTrip(conn, "12345")
		if cut := got == "123"; cut != d.chosen(uint64(i)) {
			t.Errorf("connection %d: %q, %v; want it cut after 5 bytes in all: %v", i, got, err, d.chosen(uint64(i)))
		}
	}
}

// A Toxiproxy of somebody else's takes no seed: it is not passed over in silence.
func TestRemoteTakesNoSeed(t *testing.T) {
	f := startForeign(t)
	f.proxy(t, "redis", upstream(t, echo))
	before := f.state(t)
	err := (&Remote{Tag: "netemd-test"}).Set(t.Context(), target.Toxiproxy{API: f.api, Name: "redis"},
		[]fault.Toxic{{Kind: fault.Timeout, Toxicity: 30, Seed: 7}}, soon())
	if bad, ok := errors.AsType[*qdisc.FieldError](err); !ok || bad.Field != "seed" {
		t.Errorf("%v, want a refusal of the seed", err)
	}
	sameState(t, "after the refusal", before, f.state(t))
}
