package probe

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRequestDefaults(t *testing.T) {
	open := &OpenLoop{Stages: []Stage{{From: 1, To: 1}}}
	openWant := &OpenLoop{Stages: open.Stages, MaxInFlight: 10_000}
	common := Request{Target: "t", Layer: "direct", Timeout: 5 * time.Second, Threshold: 150 * time.Millisecond}
	of := func(kind string, set func(*Request)) Request {
		r := common
		r.Kind = kind
		set(&r)
		return r
	}
	closed := func(r *Request) { r.Count, r.Concurrency, r.Pace = 200, 4, 60*time.Millisecond }
	tests := []struct {
		name    string
		r, want Request
	}{
		{"zero", Request{Target: "t"}, of("pg", func(r *Request) { closed(r); r.Postgres = PostgresOptions{Mode: "call", Query: "select 1"} })},
		{"duration", Request{Target: "t", Kind: "tcp", Duration: time.Second}, of("tcp", func(r *Request) {
			closed(r)
			r.Count, r.Duration, r.TCP.Mode = 0, time.Second, "connect"
		})},
		{"open", Request{Target: "t", Kind: "udp", Open: open}, of("udp", func(r *Request) { r.Open, r.UDP.Bytes = openWant, 64 })},
		{"echo", Request{Target: "t", Kind: "tcp", TCP: TCPOptions{Mode: "echo"}}, of("tcp", func(r *Request) { closed(r); r.TCP = TCPOptions{Mode: "echo", Bytes: 64} })},
		{"bulk", Request{Target: "t", Kind: "tcp", TCP: TCPOptions{Mode: "bulk"}}, of("tcp", func(r *Request) { closed(r); r.TCP = TCPOptions{Mode: "bulk", Bytes: 1 << 20} })},
		{"http", Request{Target: "t", Kind: "http"}, of("http", func(r *Request) { closed(r); r.HTTP = HTTPOptions{Version: "1.1", Method: "GET", Path: "/"} })},
		{"unary", Request{Target: "t", Kind: "grpc"}, of("grpc", func(r *Request) { closed(r); r.GRPC = GRPCOptions{Mode: "unary", Bytes: 64} })},
		{"stream", Request{Target: "t", Kind: "grpc", GRPC: GRPCOptions{Mode: "bidi"}}, of("grpc", func(r *Request) { closed(r); r.GRPC = GRPCOptions{Mode: "bidi", Messages: 10, Bytes: 64} })},
		{"given", Request{Kind: "x", Target: "t", Layer: "proxy", Count: 1, Concurrency: 2, Pace: NoPace, Timeout: time.Second, Threshold: 1, Seed: 3},
			Request{Kind: "x", Target: "t", Layer: "proxy", Count: 1, Concurrency: 2, Pace: NoPace, Timeout: time.Second, Threshold: 1, Seed: 3}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := test.r.WithDefaults()
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("defaults (-want +got):\n%s", d)
			}
			if d := cmp.Diff(got, got.WithDefaults()); d != "" {
				t.Errorf("defaults of defaults (-once +twice):\n%s", d)
			}
		})
	}
	if open.MaxInFlight != 0 {
		t.Error("the caller's own schedule was changed")
	}
}

func TestRequestValidate(t *testing.T) {
	s := time.Second
	rate := func(stages ...Stage) *OpenLoop { return &OpenLoop{Stages: stages} }
	tests := []struct {
		name string
		r    Request
		want string
	}{
		{"zero", Request{}, ""},
		{"least", Request{Count: 1, Concurrency: 1, Timeout: time.Millisecond}, ""},
		{"most", Request{Count: 1_000_000, Concurrency: 1000, Timeout: 10 * time.Minute, Duration: 24 * time.Hour, Warmup: time.Hour, Threshold: time.Minute}, ""},
		{"kind", Request{Kind: "ftp"}, `kind "ftp": want pg, tcp, udp, http or grpc`},
		{"layer", Request{Layer: "packet"}, `layer "packet": want direct, proxy or app`},
		{"a proxy of datagrams", Request{Kind: "udp", Layer: "proxy"}, `layer "proxy": want direct with kind udp: the proxies carry TCP`},
		{"negative count", Request{Count: -1}, `count "-1": want a number from 1 to 1000000`},
		{"count", Request{Count: 1_000_001}, `count "1000001": want a number from 1 to 1000000`},
		{"count with a duration", Request{Count: -1, Duration: s}, `count "-1": want a number from 0 to 1000000`},
		{"all at once", Request{Concurrency: 1001, Timeout: time.Microsecond},
			"concurrency \"1001\": want a number from 1 to 1000\ntimeout \"1µs\": want a duration from 1ms to 10m, such as 5s"},
		{"timeout", Request{Timeout: 11 * time.Minute}, `timeout "11m0s": want a duration from 1ms to 10m, such as 5s`},
		{"pace", Request{Pace: -2}, `pace "-2ns": want a duration from 0s to 1m, such as 60ms`},
		{"duration", Request{Duration: 25 * time.Hour}, `duration "25h0m0s": want a duration from 0s to 24h, such as 30s`},
		{"negative duration", Request{Duration: -s}, `duration "-1s": want a duration from 0s to 24h, such as 30s`},
		{"warm-up", Request{Duration: s, Warmup: s}, `warmup "1s": want less than the run's 1s`},
		{"warm-up of stages", Request{Open: rate(Stage{For: s, From: 1, To: 1}), Warmup: 2 * s}, `warmup "2s": want less than the run's 1s`},
		{"warm-up of a count", Request{Count: 3, Warmup: 2 * s}, ""},
		{"slow", Request{Threshold: time.Hour}, `slow "1h0m0s": want a duration from 1ms to 1m, such as 150ms`},

		{"open by duration", Request{Duration: s, Open: rate(Stage{From: 100, To: 100})}, ""},
		{"open by count", Request{Count: 5, Open: rate(Stage{From: 100, To: 100})}, ""},
		{"open by stages", Request{Open: rate(Stage{For: s, To: 100}, Stage{For: s})}, ""},
		{"spike", Request{Duration: 9 * s, Open: rate(Stage{For: s, From: 10, To: 10}, Stage{For: s, From: 1000, To: 1000}, Stage{From: 10, To: 10})}, ""},
		{"open without an end", Request{Open: rate(Stage{From: 1, To: 1})}, `duration "0s": want an end of an open loop: a duration, a count, or the length of the last stage`},
		{"ramp without an end", Request{Count: 3, Open: rate(Stage{From: 1, To: 2})}, `stages[0].for "0s": want the length of a ramp`},
		{"a count that is never reached", Request{Count: 3, Open: rate(Stage{For: s, From: 1})}, `stages[0].to "0": want a rate above 0 in the last stage, which has no end but the count`},
		{"no stage", Request{Count: 1, Open: &OpenLoop{}}, `stages "0": want from 1 to 1000`},
		{"no rate", Request{Count: 1, Duration: s, Open: rate(Stage{})}, `stages "0": want a rate above 0 in one stage at least`},
		{"rate", Request{Duration: s, Open: rate(Stage{From: 100_001, To: math.NaN()})},
			"stages[0].from \"100001\": want from 0 to 100000 calls per second\nstages[0].to \"NaN\": want from 0 to 100000 calls per second"},
		{"a stage without an end before the last", Request{Duration: s, Open: rate(Stage{From: 1, To: 1}, Stage{From: 1, To: 1})}, `stages[0].for "0s": want a duration above 0s, up to 24h`},
		{"stages that fill the duration", Request{Duration: s, Open: rate(Stage{For: s, From: 1, To: 1}, Stage{From: 1, To: 1})}, `duration "1s": want more than the 1s of the stages before the last`},
		{"closed and open", Request{Count: 1, Concurrency: 4, Pace: s, Open: rate(Stage{From: 1, To: 1})},
			"concurrency \"4\": want none in an open loop, which starts calls when they are due\npace \"1s\": want none in an open loop, which starts calls when they are due"},
		{"in flight", Request{Count: 1, Open: &OpenLoop{Stages: []Stage{{From: 1, To: 1}}, MaxInFlight: 100_001}}, `max_in_flight "100001": want a number from 1 to 100000`},

		{"pg mode", Request{Postgres: PostgresOptions{Mode: "copy"}}, `mode "copy": want call, connect, query, prepared or transaction`},
		{"pg pool", Request{Postgres: PostgresOptions{Mode: "query", Pool: 1001}}, `pool "1001": want a number from 0 to 1000`},
		{"pg write of nothing", Request{Postgres: PostgresOptions{Write: true}}, `write "true": want a query beside it that changes something`},
		{"pg idempotent read", Request{Postgres: PostgresOptions{Query: "select f()", Idempotent: true}}, `idempotent "true": want write beside it: a query that only reads may be made again anyway`},
		{"pg pool of connects", Request{Postgres: PostgresOptions{Mode: "connect", Pool: 1}}, `pool "1": want none with mode connect, which makes a connection each time`},
		{"pg, options of tcp", Request{TCP: TCPOptions{Mode: "echo"}}, `tcp "set": want options of the kind pg only`},
		{"tcp echo", Request{Kind: "tcp", TCP: TCPOptions{Mode: "echo", Bytes: 1, Keep: true}}, ""},
		{"tcp mode", Request{Kind: "tcp", TCP: TCPOptions{Mode: "x"}}, "mode \"x\": want connect, echo, bulk or download\nbytes \"0\": want a number from 1 to 1073741824"},
		{"tcp connect", Request{Kind: "tcp", TCP: TCPOptions{Bytes: 1, Keep: true}}, "bytes \"1\": want none with mode connect\nkeep \"true\": want false with mode connect, which makes a connection each time"},
		{"udp", Request{Kind: "udp", UDP: UDPOptions{Bytes: 51}}, `bytes "51": want a number from 52 to 65000`},
		{"http", Request{Kind: "http", HTTP: HTTPOptions{Version: "2", Method: "POST", Path: "/a?b=c", Bytes: 64 << 20, Keep: true, ReadTimeout: s, TLS: true}}, ""},
		{"http version", Request{Kind: "http", HTTP: HTTPOptions{Version: "3"}}, `version "3": want 1.1 or 2`},
		{"http method", Request{Kind: "http", HTTP: HTTPOptions{Method: "GE T"}}, `method "GE T": want a method, such as GET`},
		{"http path", Request{Kind: "http", HTTP: HTTPOptions{Path: "a"}}, `path "a": want a path that begins with /, without blanks`},
		{"http read timeout", Request{Kind: "http", HTTP: HTTPOptions{ReadTimeout: -1}}, `read_timeout "-1ns": want a duration from 0s to 10m, such as 1s`},
		{"grpc", Request{Kind: "grpc", GRPC: GRPCOptions{Mode: "server_stream", Messages: 1_000_000, Bytes: 4 << 20, New: true}}, ""},
		{"grpc mode", Request{Kind: "grpc", GRPC: GRPCOptions{Mode: "both"}}, `mode "both": want unary, server_stream, client_stream or bidi`},
		{"grpc messages", Request{Kind: "grpc", GRPC: GRPCOptions{Messages: 2}}, `messages "2": want none with mode unary`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.r.Validate()
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("error %q, want %q", got, test.want)
			}
			if err != nil && !errors.Is(err, ErrRequest) {
				t.Errorf("%v is no ErrRequest", err)
			}
		})
	}
}
