package probe

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate returns every field that is out of its range, each as a *RequestError,
// joined. A zero field stands for its default and is in range.
func (r Request) Validate() error {
	r = r.WithDefaults()
	var v validation
	v.oneOf("kind", r.Kind, KindPostgres, KindTCP, KindUDP, KindHTTP, KindGRPC)
	v.oneOf("layer", r.Layer, LayerDirect, LayerProxy, LayerApp)
	v.refuse(r.Layer == LayerApp && r.Kind != KindHTTP && r.Kind != KindGRPC, "layer", r.Layer, "direct or proxy with kind "+r.Kind+": only http and grpc pass an http-proxy")
	v.refuse(r.Kind == KindUDP && r.Layer == LayerProxy, "layer", r.Layer, "direct with kind udp: the proxies carry TCP")
	if r.Duration != 0 || r.Open != nil {
		v.number("count", r.Count, 0, MaxCount)
	} else {
		v.number("count", r.Count, 1, MaxCount)
	}
	v.duration("duration", r.Duration, 0, MaxDuration, "30s")
	v.duration("warmup", r.Warmup, 0, MaxWarmup, "2s")
	if l := r.Length(); r.Warmup > 0 && l > 0 {
		v.refuse(r.Warmup >= l, "warmup", r.Warmup.String(), fmt.Sprintf("less than the run's %v", l))
	}
	if r.Open == nil {
		v.number("concurrency", r.Concurrency, 1, MaxConcurrency)
		v.refuse(r.Pace < 0 && r.Pace != NoPace || r.Pace > MaxPace, "pace", r.Pace.String(), "a duration from 0s to 1m, such as 60ms")
	} else {
		v.refuse(r.Concurrency != 0, "concurrency", strconv.Itoa(r.Concurrency), "none in an open loop, which starts calls when they are due")
		v.refuse(r.Pace != 0, "pace", r.Pace.String(), "none in an open loop, which starts calls when they are due")
		v.open(r)
	}
	v.duration("timeout", r.Timeout, MinTimeout, MaxTimeout, "5s")
	v.duration("slow", r.Threshold, MinTimeout, MaxThreshold, "150ms")
	v.kind(r)
	return errors.Join(v.errs...)
}

// validation collects what is refused.
type validation struct{ errs []error }

func (v *validation) refuse(bad bool, field, value, want string) {
	if bad {
		v.errs = append(v.errs, &RequestError{Field: field, Value: value, Want: want})
	}
}

func (v *validation) number(field string, n, least, most int) {
	v.refuse(n < least || n > most, field, strconv.Itoa(n), fmt.Sprintf("a number from %d to %d", least, most))
}

func (v *validation) duration(field string, d, least, most time.Duration, such string) {
	v.refuse(d < least || d > most, field, d.String(), fmt.Sprintf("a duration from %s to %s, such as %s", short(least), short(most), such))
}

func (v *validation) oneOf(field, value string, allowed ...string) {
	last := len(allowed) - 1
	want := allowed[last]
	if last > 0 {
		want = strings.Join(allowed[:last], ", ") + " or " + want
	}
	v.refuse(!slices.Contains(allowed, value), field, value, want)
}

// short is a duration without the zero units that String appends: 10m and not 10m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// open refuses schedules without an end, without calls, or with a stage that cannot
// follow.
func (v *validation) open(r Request) {
	o := r.Open
	v.number("max_in_flight", o.MaxInFlight, 1, MaxMaxInFlight)
	if n := len(o.Stages); n < 1 || n > MaxStages {
		v.refuse(true, "stages", strconv.Itoa(n), fmt.Sprintf("from 1 to %d", MaxStages))
		return
	}
	var calls bool
	var before time.Duration
	last := len(o.Stages) - 1
	for i, s := range o.Stages {
		field := fmt.Sprintf("stages[%d].", i)
		for _, rate := range []struct {
			name string
			x    float64
		}{{"from", s.From}, {"to", s.To}} {
			// a NaN fails every comparison, so it is the allowed range that is asked for
			v.refuse(!(rate.x >= 0 && rate.x <= MaxRate), field+rate.name, strconv.FormatFloat(rate.x, 'g', -1, 64), fmt.Sprintf("from 0 to %d calls per second", MaxRate))
		}
		if i < last {
			v.refuse(s.For <= 0 || s.For > MaxDuration, field+"for", s.For.String(), "a duration above 0s, up to 24h")
		} else {
			v.duration(field+"for", s.For, 0, MaxDuration, "30s")
		}
		calls = calls || s.From > 0 || s.To > 0
		before += s.For
	}
	v.refuse(!calls, "stages", "0", "a rate above 0 in one stage at least")
	end := o.Stages[last]
	before -= end.For
	if r.Duration == 0 && end.For == 0 {
		v.refuse(r.Count == 0, "duration", "0s", "an end of an open loop: a duration, a count, or the length of the last stage")
		v.refuse(end.From != end.To, fmt.Sprintf("stages[%d].for", last), "0s", "the length of a ramp")
	}
	v.refuse(end.To == 0 && r.Count > 0 && r.Length() == 0, fmt.Sprintf("stages[%d].to", last), "0", "a rate above 0 in the last stage, which has no end but the count")
	v.refuse(r.Duration > 0 && end.For == 0 && before >= r.Duration, "duration", r.Duration.String(), fmt.Sprintf("more than the %v of the stages before the last", before))
}

// kind refuses options of the kind that was asked for, and all of the others.
func (v *validation) kind(r Request) {
	foreign := func(kind string, set bool) {
		v.refuse(r.Kind != kind && set, kind, "set", "options of the kind "+r.Kind+" only")
	}
	foreign(KindPostgres, r.Postgres != PostgresOptions{})
	foreign(KindTCP, r.TCP != TCPOptions{})
	foreign(KindUDP, r.UDP != UDPOptions{})
	foreign(KindHTTP, r.HTTP != HTTPOptions{})
	foreign(KindGRPC, r.GRPC != GRPCOptions{})
	switch r.Kind {
	case KindPostgres:
		v.oneOf("mode", r.Postgres.Mode, "call", "connect", "query", "prepared", "transaction")
		v.number("pool", r.Postgres.Pool, 0, MaxPool)
		v.refuse(r.Postgres.Mode == "connect" && r.Postgres.Query != defaultQuery, "query", r.Postgres.Query, "none with mode connect, which asks nothing")
		v.refuse(r.Postgres.Write && r.Postgres.Query == defaultQuery, "write", "true", "a query beside it that changes something")
		v.refuse(r.Postgres.Idempotent && !r.Postgres.Write, "idempotent", "true", "write beside it: a query that only reads may be made again anyway")
		v.refuse(r.Postgres.Mode == "connect" && r.Postgres.Pool > 0, "pool", strconv.Itoa(r.Postgres.Pool), "none with mode connect, which makes a connection each time")
		v.refuse(r.Postgres.Mode == "call" && r.Postgres.Pool > 0, "pool", strconv.Itoa(r.Postgres.Pool), "none with mode call, which makes a connection each time; query, prepared and transaction take one")
	case KindTCP:
		v.tcp(r.TCP)
	case KindUDP:
		v.number("bytes", r.UDP.Bytes, 52, 65_000)
	case KindHTTP:
		v.http(r.HTTP)
	case KindGRPC:
		v.oneOf("mode", r.GRPC.Mode, "unary", "server_stream", "client_stream", "bidi")
		v.number("bytes", r.GRPC.Bytes, 0, 4<<20)
		if r.GRPC.Mode == "unary" {
			v.refuse(r.GRPC.Messages > 1 || r.GRPC.Messages < 0, "messages", strconv.Itoa(r.GRPC.Messages), "none with mode unary")
		} else {
			v.number("messages", r.GRPC.Messages, 1, 1_000_000)
		}
	}
}

func (v *validation) tcp(o TCPOptions) {
	v.oneOf("mode", o.Mode, "connect", "echo", "bulk", "download")
	if o.Mode == "connect" {
		v.refuse(o.Bytes != 0, "bytes", strconv.Itoa(o.Bytes), "none with mode connect")
		v.refuse(o.Keep, "keep", "true", "false with mode connect, which makes a connection each time")
		return
	}
	v.number("bytes", o.Bytes, 1, 1<<30)
}

// tokenByte reports what a method may be made of (RFC 9110, 5.6.2).
func tokenByte(c rune) bool {
	return c < 0x7f && (c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
}

func (v *validation) http(o HTTPOptions) {
	v.oneOf("version", o.Version, "1.1", "2")
	v.refuse(strings.ContainsFunc(o.Method, func(c rune) bool { return !tokenByte(c) }), "method", o.Method, "a method, such as GET")
	v.refuse(!strings.HasPrefix(o.Path, "/") || strings.ContainsFunc(o.Path, func(c rune) bool { return c <= ' ' || c == 0x7f }), "path", o.Path, "a path that begins with /, without blanks")
	v.number("bytes", o.Bytes, 0, 64<<20)
	v.duration("read_timeout", o.ReadTimeout, 0, MaxTimeout, "1s")
}
