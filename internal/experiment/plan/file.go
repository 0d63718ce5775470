package plan

import (
	"strconv"
	"strings"
	"time"

	"netemd/internal/kpi"
	"netemd/internal/policyfile"
	"netemd/internal/strictyaml"
	"netemd/internal/testbed/settings"
	"netemd/probe"
	"netemd/qdisc"
)

// file is a plan as its keys.
type file struct {
	Name     string                            `yaml:"experiment" strict:"required" want:"a name, such as pg/loss-tail: a-z, 0-9, '-' and one '/', at most 64"`
	Version  int                               `yaml:"version" strict:"required" want:"1, the version of the form of plans"`
	Question string                            `yaml:"question,omitempty" want:"the question that it answers, in one sentence"`
	Lab      string                            `yaml:"lab,omitempty" want:"a built-in lab, or the path of a file"`
	Repeats  int                               `yaml:"repeats,omitempty" want:"a number from 1 to 100; 3 if it is not said"`
	Seed     uint64                            `yaml:"seed,omitempty" want:"a number from 1"`
	Command  command                           `yaml:"command,omitempty"`
	Load     load                              `yaml:"load,omitempty"`
	Phases   phases                            `yaml:"phases,omitempty"`
	Faults   []timed                           `yaml:"faults,omitempty"`
	Servers  strictyaml.Named[settings.Keys]   `yaml:"servers,omitempty" want:"SERVICE: {settings of an http-tier}, such as front: {work: 20ms}"`
	Policies strictyaml.Named[policyfile.Keys] `yaml:"policies,omitempty" want:"NAME: {keys of a client policy}, such as twice: {retry: {max_attempts: 2}}"`
	Matrix   *matrix                           `yaml:"matrix,omitempty"`
	Quick    quick                             `yaml:"quick,omitempty"`
	Takes    time.Duration                     `yaml:"takes,omitempty" want:"how long a run takes, such as 4m, for who asks before it"`
	Cases    strictyaml.Named[caseKeys]        `yaml:"cases,omitempty" want:"NAME: {keys of a case}, such as loss20: {faults: [{target: pg, impairment: {loss: 20%}}]}"`
	KPIs     []criterion                       `yaml:"kpis" strict:"required" want:"a list of conditions, such as [{must: p99_ms < 500}]"`
}

// caseKeys are those of a case; what it does not say is the plan's.
type caseKeys struct {
	Load    load                            `yaml:"load,omitempty"`
	Phases  phases                          `yaml:"phases,omitempty"`
	Faults  []timed                         `yaml:"faults,omitempty" strict:"empty"`
	Servers strictyaml.Named[settings.Keys] `yaml:"servers,omitempty" strict:"empty" want:"SERVICE: {settings of an http-tier}, such as front: {work: 20ms}"`
}

type phases struct {
	Control  extent `yaml:"control,omitempty"`
	Warmup   extent `yaml:"warmup,omitempty" want:"a time, such as 2s"`
	Fault    extent `yaml:"fault,omitempty"`
	Recovery extent `yaml:"recovery,omitempty"`
}

// command are the keys of how a command is run.
type command struct {
	Node  string        `yaml:"node,omitempty" want:"a node of the plan's lab; without one it runs where netemctl does"`
	Limit time.Duration `yaml:"limit,omitempty" want:"the longest that one run may take, such as 5m; 10m if it is not said"`
}

// extent is "200 calls", "8s" or "command".
type extent Extent

// WantYAML is the form, after "want".
func (extent) WantYAML() string {
	return "a number of calls, a time, or command, such as \"200 calls\" or 8s"
}

func (e *extent) UnmarshalText(text []byte) error {
	if string(text) == "command" {
		*e = extent{Command: true}
		return nil
	}
	if n, ok := strings.CutSuffix(string(text), " calls"); ok {
		v, err := strconv.Atoi(n)
		if err != nil || v < 1 || v > probe.MaxCount || strconv.Itoa(v) != n {
			return &qdisc.FieldError{Value: string(text)}
		}
		*e = extent{Calls: v}
		return nil
	}
	d, err := qdisc.ParseDuration(string(text))
	if err != nil || d <= 0 || d > MaxExtent {
		return &qdisc.FieldError{Value: string(text)}
	}
	*e = extent{For: d}
	return nil
}

// load are the keys of what is called: the flags of netemctl probe.
type load struct {
	Probe       string         `yaml:"probe,omitempty" want:"pg, tcp, udp, http or grpc"`
	Target      string         `yaml:"target,omitempty" want:"the name of a target"`
	Layer       string         `yaml:"layer,omitempty" want:"direct, proxy or app"`
	Mode        string         `yaml:"mode,omitempty" want:"a mode of the probe, such as call or echo"`
	Concurrency int            `yaml:"concurrency,omitempty" want:"calls at a time, from 1 to 1000"`
	Pace        *time.Duration `yaml:"pace,omitempty" want:"the least time between the starts of two calls, 0s for none"`
	Rate        rate           `yaml:"rate,omitempty"`
	Arrival     string         `yaml:"arrival,omitempty" want:"constant or poisson"`
	Timeout     time.Duration  `yaml:"timeout,omitempty" want:"the budget of one call, such as 500ms"`
	Slow        time.Duration  `yaml:"slow,omitempty" want:"the time above which a call gets a cause, such as 150ms"`
	Policy      string         `yaml:"policy,omitempty" want:"a client policy of the plan, a built-in one, or the path of a file"`
	Pool        *int           `yaml:"pool,omitempty" want:"a number of kept connections; 0 for a new one for each call"`
	Query       string         `yaml:"query,omitempty" want:"a query with one row and one value"`
	Write       bool           `yaml:"write,omitempty" want:"true for a query that may change something"`
	Idempotent  bool           `yaml:"idempotent,omitempty" want:"true for a query that writes and may be made more than once"`
	Keep        *bool          `yaml:"keep,omitempty" want:"true or false"`
	ReadTimeout time.Duration  `yaml:"read_timeout,omitempty" want:"the longest wait for a piece of an answer, such as 2s; timeout holds beside it"`
	HTTP        string         `yaml:"http,omitempty" want:"1.1 or 2"`
	Method      string         `yaml:"method,omitempty" want:"a method, such as GET or POST"`
	Path        string         `yaml:"path,omitempty" want:"the path of the request, such as /pay"`
	Bytes       qdisc.Bytes    `yaml:"bytes,omitempty"`
	Messages    int            `yaml:"messages,omitempty" want:"messages of a stream"`
}

// rate is calls a second: "100/s".
type rate float64

// WantYAML is the form, after "want".
func (rate) WantYAML() string { return "calls a second, such as 100/s" }

func (r *rate) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "/s")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v > 0) || v > probe.MaxRate {
		return &qdisc.FieldError{Value: string(text)}
	}
	*r = rate(v)
	return nil
}

type criterion struct {
	Must      condition `yaml:"must" strict:"required"`
	Why       string    `yaml:"why,omitempty" want:"what it is about, in one sentence"`
	Reference string    `yaml:"reference,omitempty" want:"what others measured"`
}

// WantYAML is the form, after "want".
func (criterion) WantYAML() string { return "{must: CONDITION}, such as {must: p99_ms < 500 in fault}" }

type condition kpi.KPI

// WantYAML is the form, after "want".
func (condition) WantYAML() string { return "a condition, such as \"p99_ms < 500 in fault\"" }

func (c *condition) UnmarshalText(text []byte) error {
	k, err := kpi.Parse(string(text))
	*c = condition(k)
	return err
}
