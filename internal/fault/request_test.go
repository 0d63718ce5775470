package fault

import (
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"netemd/qdisc"
)

func TestValidateRequest(t *testing.T) {
	good := Request{Error: 20, Status: 503}
	with := func(change func(*Request)) Request {
		r := good
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		request Request
		want    string // in the error; empty for none
	}{
		"error":           {good, ""},
		"code":            {Request{Error: 20, Code: "UNAVAILABLE", Pushback: 500 * time.Millisecond}, ""},
		"all, of some":    {Request{Error: 20, Status: 503, Code: "UNAVAILABLE", RetryAfter: time.Second, Delay: 30, Latency: time.Second, Jitter: time.Second, Abort: 50, Method: "GET", Path: "/a/*", Headers: []Header{{"x-a", "b c"}}}, ""},
		"tenths":          {Request{Error: 33.3, Status: 500, Delay: 33.3, Latency: time.Second, Abort: 33.4}, ""},
		"nothing":         {Request{}, "request: want a share above 0%"},
		"too much":        {with(func(r *Request) { r.Abort = 80.1 }), "want at most 100% of error, delay and abort together"},
		"no number":       {with(func(r *Request) { r.Abort = qdisc.Percent(math.NaN()) }), "abort"},
		"negative":        {with(func(r *Request) { r.Abort = -1 }), `abort "-1%": want a percentage`},
		"no answer":       {Request{Error: 1}, "status: want a status from 400 to 599"},
		"success":         {Request{Error: 1, Status: 200}, `status "200"`},
		"unknown code":    {Request{Error: 1, Code: "OK"}, `code "OK": want a status code of gRPC: CANCELLED`},
		"status alone":    {Request{Abort: 1, Status: 503}, `status "503": want nothing without a share of error`},
		"code alone":      {Request{Abort: 1, Code: "INTERNAL"}, `code "INTERNAL": want nothing`},
		"half a second":   {with(func(r *Request) { r.RetryAfter = time.Second / 2 }), `retry_after "500ms": want a multiple of 1s`},
		"retry, gRPC":     {Request{Error: 1, Code: "INTERNAL", RetryAfter: time.Second}, "retry_after \"1s\": want nothing without a status"},
		"pushback, HTTP":  {with(func(r *Request) { r.Pushback = time.Second }), "pushback \"1s\": want nothing without a code"},
		"no delay":        {Request{Delay: 1}, `latency "0s": want a time from 1us`},
		"share of none":   {with(func(r *Request) { r.Latency = 1 }), "latency \"1ns\": want nothing without a share of delay"},
		"jitter":          {Request{Delay: 1, Latency: time.Second, Jitter: 2 * time.Second}, `jitter "2s": want a time up to the delay, 1s`},
		"method":          {with(func(r *Request) { r.Method = "get" }), `method "get"`},
		"path":            {with(func(r *Request) { r.Path = "pay" }), `path "pay"`},
		"query":           {with(func(r *Request) { r.Path = "/a?b" }), `path "/a?b": want a path without a query`},
		"header":          {with(func(r *Request) { r.Headers = []Header{{"a b", "c"}} }), `header "a b"`},
		"header's value":  {with(func(r *Request) { r.Headers = []Header{{"a", "b\r\nc"}} }), `header "a": want a value`},
		"header twice":    {with(func(r *Request) { r.Headers = []Header{{"a", "b"}, {"A", "c"}} }), `header "A": want each name once`},
		"too many values": {with(func(r *Request) { r.Headers = make([]Header, 17) }), "header: want at most 16"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Spec{Target: "web", Request: &c.request}.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, qdisc.ErrInvalid)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	for want, s := range map[string]Spec{
		"want a fault of requests alone":              {Target: "web", Request: &good, Toxics: []Toxic{{Kind: Down}}},
		"want application for requests":               {Target: "web", Request: &good, Engine: EBPF},
		"want to or nothing":                          {Target: "web", Request: &good, Direction: Both},
		"want nothing for requests: they are no":      {Target: "web", Request: &good, Offload: OffloadOff},
		"want none: only a packet impairment has one": {Target: "web", Request: &good, PacketFrom: &qdisc.Netem{}},
	} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestDrawShares holds each share to the interval in which it is with a probability of 99.9 %, and
// fates that follow one another to be independent.
func TestDrawShares(t *testing.T) {
	const n, z = 200_000, 3.2905 // of a normal distribution, two-sided
	r := Request{Error: 20, Delay: 30, Abort: 5, Status: 503, Latency: time.Second, Jitter: time.Second / 10, Seed: 7}
	var counts [4]int
	var pairs int
	var waited time.Duration
	before := Passed
	for k := range uint64(n) {
		v, wait := r.Draw(k)
		counts[v]++
		if v == Answered && before == Answered {
			pairs++
		}
		before = v
		if v != Held && wait != 0 || v == Held && (wait < 900*time.Millisecond || wait > 1100*time.Millisecond) {
			t.Fatalf("request %d: verdict %d waits %v", k, v, wait)
		}
		waited += wait
	}
	check := func(what string, got int, p float64) {
		if off := math.Abs(float64(got)/n - p); off > z*math.Sqrt(p*(1-p)/n) {
			t.Errorf("%s: %d of %d, want %.1f %%", what, got, n, 100*p)
		}
	}
	check("errors", counts[Answered], .2)
	check("delays", counts[Held], .3)
	check("aborts", counts[Aborted], .05)
	check("passed", counts[Passed], .45)
	check("two errors in a row", pairs, .04)
	held := float64(counts[Held])
	if off := math.Abs(waited.Seconds()/held - 1); off > z*(.2/math.Sqrt(12*held)) {
		t.Errorf("delays are off by %.5f s on average", off)
	}
}

// TestDrawIsByNumber draws the same by many goroutines as by one, and otherwise with another seed.
func TestDrawIsByNumber(t *testing.T) {
	const n = 5000
	r := Request{Error: 50, Status: 503, Seed: 11}
	var want, got [n]Verdict
	for k := range n {
		want[k], _ = r.Draw(uint64(k))
	}
	var next atomic.Uint64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for k := next.Add(1) - 1; k < n; k = next.Add(1) - 1 {
				got[k], _ = r.Draw(k)
			}
		})
	}
	all.Wait()
	if got != want {
		t.Error("the fates depend on who draws them")
	}
	same := 0
	r.Seed = 12
	for k := range n {
		if v, _ := r.Draw(uint64(k)); v == want[k] {
			same++
		}
	}
	if math.Abs(float64(same)/n-.5) > 3.2905*.5/math.Sqrt(n) {
		t.Errorf("another seed draws the same %d times of %d", same, n)
	}
}

func TestSelects(t *testing.T) {
	header := func(name string) []string {
		if name == "x-tenant" {
			return []string{"a", "b"}
		}
		return nil
	}
	for _, c := range []struct {
		r    Request
		want bool
	}{
		{Request{}, true},
		{Request{Method: "GET"}, true},
		{Request{Method: "POST"}, false},
		{Request{Path: "/pay/1/x"}, true},
		{Request{Path: "/pay"}, false},
		{Request{Path: "/pay/*"}, true},
		{Request{Path: "*/x"}, true},
		{Request{Path: "/*/1/*"}, true},
		{Request{Path: "/pay/1/x*1/x"}, false}, // what stands at both ends is not one text
		{Request{Path: "/p*y/*z"}, false},
		{Request{Headers: []Header{{"x-tenant", "b"}}}, true},
		{Request{Headers: []Header{{"x-tenant", "b"}, {"x-other", ""}}}, false},
		{Request{Headers: []Header{{"x-tenant", "c"}}}, false},
		{Request{Error: 1, Code: "INTERNAL"}, false}, // gRPC calls only
		{Request{Error: 1, Code: "INTERNAL", Status: 500}, true},
	} {
		if got := c.r.Selects("GET", "/pay/1/x", header, false); got != c.want {
			t.Errorf("%+v: %t", c.r, got)
		}
	}
}

func TestApart(t *testing.T) {
	for _, c := range []struct {
		a, b Request
		want bool
	}{
		{Request{}, Request{}, false},
		{Request{Method: "GET"}, Request{Method: "POST"}, true},
		{Request{Method: "GET"}, Request{}, false},
		{Request{Path: "/a"}, Request{Path: "/b"}, true},
		{Request{Path: "/a"}, Request{Path: "/a"}, false},
		{Request{Path: "/a/*"}, Request{Path: "/b/*"}, true},
		{Request{Path: "/a/*"}, Request{Path: "/a/b/*"}, false},
		{Request{Path: "/a/*"}, Request{Path: "/a/b"}, false},
		{Request{Path: "/a/*"}, Request{Path: "/b"}, true},
		{Request{Path: "*a"}, Request{Path: "*b"}, false},
	} {
		if c.a.Apart(c.b) != c.want || c.b.Apart(c.a) != c.want {
			t.Errorf("%v and %v: want %t", c.a, c.b, c.want)
		}
	}
}

func TestParseRequest(t *testing.T) {
	var r Request
	for _, err := range []error{r.ParseError("20% 503 UNAVAILABLE"), r.ParseDelay("30% 300ms jitter=50ms"), r.ParseAbort("5%")} {
		if err != nil {
			t.Error(err)
		}
	}
	r.Method, r.Path, r.Headers = "GET", "/pay/*", []Header{{"x-a", "b"}}
	r.RetryAfter, r.Pushback = time.Second, time.Second/2
	const want = "error 20% 503 UNAVAILABLE retry-after 1s pushback 500ms, delay 30% 300ms jitter 50ms, abort 5% of GET /pay/* x-a=b"
	if got := r.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, text := range []string{"", "20%", "503", "0% 503", "20 503", "20% 503 504", "20% NOPE", "20% 503 INTERNAL x"} {
		if err := r.ParseError(text); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("error %q: %v", text, err)
		}
	}
	for _, text := range []string{"", "20%", "300ms", "20% 300", "20% 300ms 50ms", "20% 300ms jitter=5"} {
		if err := r.ParseDelay(text); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("delay %q: %v", text, err)
		}
	}
	for _, text := range []string{"", "5", "0%", "101%"} {
		if err := r.ParseAbort(text); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("abort %q: %v", text, err)
		}
	}
}
