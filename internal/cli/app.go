package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// appFlags say a fault of requests beside what it does.
type appFlags struct {
	lasting
	request fault.Request
	target  string
	dryRun  bool
}

func (a *app) app() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "app WHAT", Short: "Answer, delay or reset a share of the requests to a target",
		Long: `Answer, delay or reset a share of the requests that go through the target's http-proxy: the
application layer, of HTTP/1.1, HTTP/2 without TLS, and gRPC. The unit is a request (a stream of HTTP/2),
not a connection. One draw decides about each request, by its number and the seed: the same seed
gives request number k the same fate. What is answered or reset, the server never sees.

Clients have to go through the http-proxy, as netemctl probe --layer app does; its address is in
netemctl target list. Answers that are the fault's own have the header Netemd-Fault.`,
	})
	cmd.AddCommand(a.appError(), a.appDelay(), a.appAbort(), a.appApply())
	return cmd
}

const rateUsage = "the share of requests, such as 20%"

func (a *app) appError() *cobra.Command {
	f := appFlags{request: fault.Request{Error: 100}}
	cmd := a.appCommand(&f, "error", "", "Answer with an error", `Answer a share of the requests with an error, by a status of HTTP, a code of gRPC, or both: then
each kind of request gets its own. With a code alone nothing but gRPC calls is meant; with a status alone
gRPC calls get that, which their clients take for a code (503 for UNAVAILABLE).`, nil)
	flags := cmd.Flags()
	flags.Var(typed(&f.request.Error, "SHARE", requestShare, qdisc.Percent.String), "rate", rateUsage)
	answerFlags(cmd, &f.request)
	return cmd
}

func (a *app) appDelay() *cobra.Command {
	f := appFlags{request: fault.Request{Delay: 100}}
	cmd := a.appCommand(&f, "delay", "TIME", "Hold requests for a time", `Hold a share of the requests for a time before they go on to the server. When the fault
ends they go on at once; when their client goes they end.`, func(s string) (err error) {
		f.request.Latency, err = qdisc.ParseDuration(s)
		return err
	})
	flags := cmd.Flags()
	flags.Var(typed(&f.request.Delay, "SHARE", requestShare, qdisc.Percent.String), "rate", rateUsage)
	duration(cmd, &f.request.Jitter, "jitter", "vary it by up to this much either way, evenly")
	return cmd
}

func (a *app) appAbort() *cobra.Command {
	f := appFlags{request: fault.Request{Abort: 100}}
	cmd := a.appCommand(&f, "abort", "", "Reset before any answer", `Reset a share of the requests before any answer: the connection of an HTTP/1.1 request, the stream of
an HTTP/2 one (RST_STREAM with INTERNAL_ERROR), whose other streams go on.`, nil)
	cmd.Flags().Var(typed(&f.request.Abort, "SHARE", requestShare, qdisc.Percent.String), "rate", rateUsage)
	return cmd
}

func (a *app) appApply() *cobra.Command {
	var f appFlags
	cmd := a.appCommand(&f, "apply", "", "Several at once, by one draw", `Several at once: one draw decides which of them a request meets, so that the shares are
exclusive and at most 100% together.`, nil)
	flags := cmd.Flags()
	part := func(name, kind, usage string, parse func(string) error) {
		flags.Var(&value{kind: kind, set: parse}, name, usage)
	}
	part("error", "ERROR", "a share and a status, a code of gRPC or both, such as \"20% 503\" or \"20% UNAVAILABLE\"", f.request.ParseError)
	part("delay", "DELAY", "a share and a time, such as \"20% 300ms\" or \"20% 300ms jitter=50ms\"", f.request.ParseDelay)
	part("abort", "SHARE", "a share, such as 5%", f.request.ParseAbort)
	toldFlags(cmd, &f.request)
	return cmd
}

// requestShare is above 0 %.
func requestShare(s string) (qdisc.Percent, error) {
	p, err := qdisc.ParsePercent(s)
	if err == nil && p == 0 {
		err = &qdisc.FieldError{Value: s, Want: "a share above 0%; 'clear' takes a fault away"}
	}
	return p, err
}

func answerFlags(cmd *cobra.Command, r *fault.Request) {
	cmd.Flags().Var(typed(&r.Status, "STATUS", integer(400, 599), nil), "status", "answer requests of HTTP with it, such as 503")
	cmd.Flags().Var(once(&r.Code, "CODE", "a status code of gRPC, such as UNAVAILABLE"), "code", "answer calls of gRPC with it, such as UNAVAILABLE")
	completeWords(cmd, "code", fault.Codes)
	toldFlags(cmd, r)
}

// toldFlags are what an answer tells beside.
func toldFlags(cmd *cobra.Command, r *fault.Request) {
	duration(cmd, &r.RetryAfter, "retry-after", "tell clients of HTTP when to try again, in whole seconds")
	duration(cmd, &r.Pushback, "pushback", "tell clients of gRPC when to try again (grpc-retry-pushback-ms)")
}

// appCommand makes one of the commands; parse reads its argument, nil for none.
func (a *app) appCommand(f *appFlags, name, argument, short, long string, parse func(string) error) *cobra.Command {
	use, count := name, 0
	if parse != nil {
		use, count = name+" "+argument, 1
	}
	cmd := &cobra.Command{Use: use + dashUse, Short: short, Long: long, DisableFlagsInUseLine: true, ValidArgsFunction: cobra.NoFileCompletions}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := a.argumentsAndCommand(count, form(cmd))(cmd, args); err != nil || parse == nil {
			return err
		}
		return fault.WithHint(parse(args[0]), seeHelp(cmd))
	}
	if parse != nil {
		a.positional[cmd] = parse
	}
	flags := cmd.Flags()
	flags.Var(once(&f.request.Method, "METHOD", "a method of HTTP, such as GET"), "method", "only requests of that method")
	flags.Var(once(&f.request.Path, "PATTERN", "a path, such as /pay/*"), "path", "only requests of that path, which of gRPC is the full method; * is any text: '/pay/*', '/shop.Cart/*'")
	flags.Var(&value{kind: "NAME=VALUE", set: func(s string) error {
		h, err := fault.ParseHeader(s)
		if err == nil {
			f.request.Headers = append(f.request.Headers, h)
		}
		return err
	}}, "header", "only requests with that header field; may be said several times")
	flags.Var(typed(&f.request.Seed, "N", unsigned[uint64](64, 1), nil), "seed", "give request number k the same fate each time (default one that is drawn, and shown)")
	a.spotFlags(cmd, &f.target, &f.lasting, &f.dryRun)
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		if f.target == "" {
			return errNoTarget
		}
		r := f.request
		spec := fault.Spec{Target: f.target, Request: &r}
		f.fillSpec(&spec)
		if err := spec.Validate(); err != nil {
			return appFields(err)
		}
		return a.runFault(cmd, spec, handling{dryRun: f.dryRun}, dashed(cmd, args))
	})
	return cmd
}

// appFields names fields as the flags that they came from.
func appFields(err error) error {
	return qdisc.Renamed(err, func(field string) string {
		switch field {
		case "status", "code", "retry_after", "pushback", "jitter", "method", "path", "header":
			return "--" + strings.ReplaceAll(field, "_", "-")
		}
		return field
	})
}

// requestView is a fault of requests as JSON.
type requestView struct {
	Error        float64           `json:"error_percent"`
	Delay        float64           `json:"delay_percent"`
	Abort        float64           `json:"abort_percent"`
	Status       int               `json:"status,omitempty"`
	Code         string            `json:"code,omitempty"`
	RetryAfterNS int64             `json:"retry_after_ns,omitempty"`
	PushbackNS   int64             `json:"pushback_ns,omitempty"`
	DelayNS      int64             `json:"delay_ns,omitempty"`
	JitterNS     int64             `json:"jitter_ns,omitempty"`
	Method       string            `json:"method,omitempty"`
	Path         string            `json:"path,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	// Seed is null in a plan without one: the agent draws it.
	Seed *uint64 `json:"seed"`
}

func viewRequest(r fault.Request) *requestView {
	v := &requestView{
		Error: float64(r.Error), Delay: float64(r.Delay), Abort: float64(r.Abort), Status: r.Status, Code: r.Code,
		RetryAfterNS: int64(r.RetryAfter), PushbackNS: int64(r.Pushback), DelayNS: int64(r.Latency), JitterNS: int64(r.Jitter),
		Method: r.Method, Path: r.Path,
	}
	for _, h := range r.Headers {
		if v.Headers == nil {
			v.Headers = map[string]string{}
		}
		v.Headers[h.Name] = h.Value
	}
	if r.Seed != 0 {
		v.Seed = new(r.Seed)
	}
	return v
}

// requestCounters are what happened to requests, as JSON.
type requestCounters struct {
	Seen    uint64 `json:"seen_requests"`
	Errors  uint64 `json:"error_requests"`
	Delayed uint64 `json:"delayed_requests"`
	Aborted uint64 `json:"aborted_requests"`
	// Opened passed unimpaired, since nothing was heard of the agent.
	Opened uint64 `json:"opened_requests"`
}

func viewRequests(c fault.Counters) *requestCounters {
	return &requestCounters{Seen: c.Seen, Errors: c.Errors, Delayed: c.Delayed, Aborted: c.Aborted, Opened: c.Opened}
}

// requestsText says the counters of a fault of requests that are not 0.
func requestsText(c fault.Counters) string {
	parts := []string{fmt.Sprintf("%d seen", c.Seen)}
	for _, p := range []struct {
		n    uint64
		what string
	}{{c.Errors, "answered with an error"}, {c.Delayed, "delayed"}, {c.Aborted, "reset"}, {c.Opened, "passed unimpaired, nothing being heard of the agent"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// requestRows are a fault of requests for people.
func requestRows(f fault.Fault) [][2]string {
	r := f.Spec.Request
	if r == nil {
		return nil
	}
	return [][2]string{{"seed", strconv.FormatUint(r.Seed, 10)}, {"requests", requestsText(f.Counters)}}
}

// requestPlan is a dry run of a fault of requests as JSON.
type requestPlan struct {
	Engine    fault.Engine `json:"engine"`
	Placement string       `json:"placement"`
	Request   *requestView `json:"request"`
	// Fates are what becomes of the first requests, where a seed is given.
	Fates    []fateView `json:"fates,omitempty"`
	Warnings []string   `json:"warnings"`
}

// fateView is what becomes of a request.
type fateView struct {
	Request uint64 `json:"request"` // its number, from 0
	Fate    string `json:"fate"`    // pass, error, delay or abort
	DelayNS int64  `json:"delay_ns,omitempty"`
}

// plannedFates is how many fates a plan tells.
const plannedFates = 20

func fates(r fault.Request) (all []fateView) {
	names := map[fault.Verdict]string{fault.Passed: "pass", fault.Answered: "error", fault.Held: "delay", fault.Aborted: "abort"}
	for k := range uint64(plannedFates) {
		v, wait := r.Draw(k)
		all = append(all, fateView{Request: k, Fate: names[v], DelayNS: int64(wait)})
	}
	return all
}

// planRequest says what a fault of requests would do, and where.
func (a *app) planRequest(ctx context.Context, spec fault.Spec) error {
	t, err := a.planTarget(ctx, spec.Target)
	if err != nil {
		return err
	}
	if !t.HTTPProxy.IsValid() {
		return fmt.Errorf("target %s has no http-proxy for faults of requests: %w", spec.Target, errors.ErrUnsupported)
	}
	p := requestPlan{
		Engine: fault.Application, Placement: "http-proxy at " + t.HTTPProxy.String(), Request: viewRequest(*spec.Request), Warnings: []string{},
	}
	if spec.Request.Seed != 0 {
		p.Fates = fates(*spec.Request)
	}
	return a.emit(answer{kind: "plan", data: p, table: func(w io.Writer, s style) {
		fmt.Fprintf(w, "plan: %s (nothing was changed)\n", s.bold(words(spec)))
		rows := [][2]string{{"engine", string(p.Engine)}, {"placement", p.Placement}}
		if len(p.Fates) == 0 {
			rows = append(rows, [2]string{"seed", "the agent draws one, and tells it"})
		} else {
			rows = append(rows, [2]string{"seed", strconv.FormatUint(spec.Request.Seed, 10)}, [2]string{"fates", fatesText(p.Fates)})
		}
		pairs(w, s, rows)
	}})
}

func fatesText(all []fateView) string {
	words := make([]string, len(all))
	for i, f := range all {
		words[i] = f.Fate
		if f.DelayNS > 0 {
			words[i] += " " + qdisc.FormatDuration(time.Duration(math.Round(float64(f.DelayNS)/1e5)*1e5))
		}
	}
	return strings.Join(words, ", ") + ", ..."
}
