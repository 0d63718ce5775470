package plan

import (
	"fmt"
	"strings"
	"time"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/impairment"
	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// timed are the keys of a fault: exactly one of those after engine.
type timed struct {
	Target     string                    `yaml:"target,omitempty" want:"the name of a target; without one the load's"`
	At         time.Duration             `yaml:"at,omitempty" want:"when it begins, from the phase's beginning, such as 2s"`
	For        time.Duration             `yaml:"for,omitempty" want:"how long it stands, such as 5s; to the phase's end if it is not said"`
	Direction  fault.Direction           `yaml:"direction,omitempty" want:"to, from or both"`
	Engine     fault.Engine              `yaml:"engine,omitempty" want:"auto, netem or ebpf"`
	Impairment *impairment.Keys          `yaml:"impairment,omitempty"`
	Toxics     strictyaml.Several[toxic] `yaml:"toxics,omitempty"`
	Drop       *ruleKeys                 `yaml:"drop,omitempty"`
	Hold       *ruleKeys                 `yaml:"hold,omitempty"`
	Request    *requestKeys              `yaml:"request,omitempty"`
	Process    *processKeys              `yaml:"process,omitempty"`
}

// WantYAML is the form, after "want".
func (timed) WantYAML() string {
	return "a fault, such as {target: pg, impairment: {loss: 20%}} or {toxics: latency latency=300ms}: one of impairment, toxics, drop, hold, request and process"
}

type toxic fault.Toxic

// WantYAML is the form, after "want".
func (toxic) WantYAML() string {
	return "a toxic in one text, such as \"latency latency=300ms jitter=100ms\""
}

func (t *toxic) UnmarshalText(text []byte) error {
	v, err := fault.ParseToxic(string(text))
	*t = toxic(v)
	return err
}

// ruleKeys choose packets, as netemctl drop and hold do.
type ruleKeys struct {
	What          what          `yaml:"what" strict:"required"`
	Count         uint32        `yaml:"count,omitempty" want:"a number of packets from 1, after which the rule rests"`
	PerConnection bool          `yaml:"per_connection,omitempty"`
	Time          time.Duration `yaml:"time,omitempty" want:"how long a packet is held, such as 200ms"`
}

type what content.Rule

// WantYAML is the form, after "want".
func (what) WantYAML() string {
	return "what is chosen, such as syn, data:3, retransmit, every:10 or \"match tcp.len > 100\""
}

func (w *what) UnmarshalText(text []byte) error {
	v, err := content.Parse([]string{string(text)})
	*w = what(v)
	return err
}

func (k ruleKeys) rule() *content.Rule {
	r := content.Rule(k.What)
	r.Count, r.PerConnection, r.Hold = k.Count, k.PerConnection, k.Time
	return &r
}

// requestKeys are a fault of requests, as netemctl app apply has it.
type requestKeys struct {
	Error      share         `yaml:"error,omitempty" want:"a share and a status, a code of gRPC or both, such as \"20% 503\" or \"20% UNAVAILABLE\""`
	Delay      share         `yaml:"delay,omitempty" want:"a share and a time, such as \"20% 300ms\" or \"20% 300ms jitter=50ms\""`
	Abort      share         `yaml:"abort,omitempty" want:"a share, such as 5%"`
	RetryAfter time.Duration `yaml:"retry_after,omitempty" want:"whole seconds, such as 2s"`
	Pushback   time.Duration `yaml:"pushback,omitempty" want:"whole milliseconds, such as 50ms"`
	Method     string        `yaml:"method,omitempty" want:"a method of HTTP, such as POST"`
	Path       string        `yaml:"path,omitempty" want:"a path, such as /pay/*, in which * is any text"`
}

// share is read by the request's own words, once all keys are there.
type share string

func (k requestKeys) request(refuse func(field string, err error)) *fault.Request {
	r := &fault.Request{RetryAfter: k.RetryAfter, Pushback: k.Pushback, Method: k.Method, Path: k.Path}
	for _, part := range []struct {
		field string
		text  share
		parse func(string) error
	}{{"error", k.Error, r.ParseError}, {"delay", k.Delay, r.ParseDelay}, {"abort", k.Abort, r.ParseAbort}} {
		if part.text == "" {
			continue
		}
		if err := part.parse(string(part.text)); err != nil {
			refuse(part.field, err)
		}
	}
	return r
}

// processKeys are outages of services, as netemctl process makes them.
type processKeys struct {
	Action   fault.OutageAction         `yaml:"action" strict:"required" want:"kill, stop or restart"`
	Services strictyaml.Several[string] `yaml:"services" strict:"required" want:"a service of the plan's lab, such as postgres, or a list of such"`
	Down     *time.Duration             `yaml:"down,omitempty" want:"how long each is down, such as 600ms; 0s until the fault ends"`
	Every    time.Duration              `yaml:"every,omitempty" want:"the time from one outage to the next, such as 1.5s"`
	Jitter   qdisc.Percent              `yaml:"jitter,omitempty" want:"the share by which that varies, such as 20%"`
	Count    int                        `yaml:"count,omitempty" want:"how many outages there are, from 1"`
	AtMost   int                        `yaml:"at_most,omitempty" want:"how many services may be down at once, from 1"`
}

func (k processKeys) outage() *fault.Outage {
	o := &fault.Outage{Action: k.Action, Services: k.Services, Every: k.Every, Jitter: k.Jitter, Count: k.Count, AtMost: k.AtMost}
	switch {
	case k.Down != nil:
		o.Down = *k.Down
	case k.Action != fault.Restart:
		o.Down = fault.DefaultDown
	}
	return o
}

// kinds are those of the keys that say what a fault does.
func (f timed) kinds() (out []string) {
	for _, k := range []struct {
		name string
		said bool
	}{
		{"impairment", f.Impairment != nil},
		{"toxics", len(f.Toxics) > 0},
		{"drop", f.Drop != nil},
		{"hold", f.Hold != nil},
		{"request", f.Request != nil},
		{"process", f.Process != nil},
	} {
		if k.said {
			out = append(out, k.name)
		}
	}
	return out
}

func (r *reader) fault(key string, f timed, c Case) Timed {
	t := Timed{At: f.At, For: f.For, Spec: fault.Spec{Target: f.Target, Direction: f.Direction, Engine: f.Engine}}
	if t.Target == "" && f.Process == nil {
		t.Target = c.Load.Target
	}
	kinds := f.kinds()
	if len(kinds) != 1 {
		r.refuse(key, strings.Join(kinds, ", "), timed{}.WantYAML())
		return t
	}
	before := len(r.errs)
	at := key + "." + kinds[0]
	switch kinds[0] {
	case "impairment":
		if err := f.Impairment.Validate(); err != nil {
			r.errs = append(r.errs, below(at, err))
			return t
		}
		t.Packet = new(f.Impairment.Netem())
	case "toxics":
		for _, x := range f.Toxics {
			t.Toxics = append(t.Toxics, fault.Toxic(x))
		}
	case "drop":
		if f.Drop.Time != 0 {
			r.strangeKey(at+".time", "is of hold")
		}
		t.Content = f.Drop.rule()
	case "hold":
		if f.Hold.Time == 0 {
			r.refuse(at+".time", "", "how long a packet is held, such as 200ms")
		}
		t.Content = f.Hold.rule()
	case "request":
		t.Request = f.Request.request(func(field string, err error) { r.errs = append(r.errs, below(at+"."+field, err)) })
	case "process":
		t.Outage = f.Process.outage()
	}
	if len(r.errs) > before || t.Content != nil && t.Content.Kind == "" {
		return t // what is no rule was refused as it was read
	}
	if err := t.Validate(); err != nil {
		if t.Packet != nil || t.Toxics != nil {
			at = key
		}
		r.errs = append(r.errs, below(at, err))
	}
	r.times(key, t, c)
	return t
}

// times refuses a fault that does not stand within its phase.
func (r *reader) times(key string, t Timed, c Case) {
	switch end := t.At + t.For; {
	case t.At < 0:
		r.refuse(key+".at", qdisc.FormatDuration(t.At), "a time from 0s")
	case t.For < 0:
		r.refuse(key+".for", qdisc.FormatDuration(t.For), "a time above 0s")
	case !c.Continuous() && end > 0:
		r.refuse(key+".at", qdisc.FormatDuration(t.At), "neither at nor for, where the phase fault is no time")
	case c.Continuous() && (end > c.Fault.For || t.At == c.Fault.For):
		r.refuse(key+".for", qdisc.FormatDuration(t.For), fmt.Sprintf("an end within the phase fault, which takes %s", qdisc.FormatDuration(c.Fault.For)))
	}
}
