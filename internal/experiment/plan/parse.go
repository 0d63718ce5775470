package plan

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/internal/kpi"
	"netemd/internal/policyfile"
	"netemd/internal/strictyaml"
	"netemd/probe"
	"netemd/qdisc"
)

var format = strictyaml.Format{}

// SchemaPath is where the schema is published, below the root of the tree.
const SchemaPath = "api/experiment.schema.json"

// Parse reads a plan; path is for the errors. The error has a *strictyaml.Mistake, with its
// line and column, for each thing that is wrong. Policies that are not in it, and labs, are not looked for.
func Parse(path string, text []byte) (Plan, error) {
	var f file
	doc := format.Read(path, text, &f)
	if !doc.Readable() {
		return Plan{}, doc.Err()
	}
	r := reader{file: f}
	p := r.plan()
	p.Text, p.Policies = text, map[string][]byte{}
	for _, e := range f.Policies {
		r.policy(doc, e, &p)
	}
	if rest := doc.Check(errors.Join(r.errs...)); rest != nil {
		return Plan{}, rest
	}
	if err := doc.Err(); err != nil {
		return Plan{}, err
	}
	return p, nil
}

// Schema is the JSON schema of plans, for editors.
func Schema() ([]byte, error) { return format.Schema("", "An experiment of netemd", file{}) }

// reader makes the plan of the keys, and collects what is wrong with them.
type reader struct {
	file
	errs []error
}

func (r *reader) refuse(field, value, want string) {
	r.errs = append(r.errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)?$`)

// policy keeps the text of one of the plan's own policies.
func (r *reader) policy(doc *strictyaml.Document, e strictyaml.Entry[policyfile.Keys], p *Plan) {
	key := strictyaml.Key("policies", e.Name)
	made, err := e.Value.Policy(doc, key, e.Name)
	if err != nil || made.Validate() != nil {
		r.errs = append(r.errs, err) // the document knows what is wrong with its keys
		return
	}
	text, err := policyfile.YAML(made)
	if err != nil {
		r.refuse(key, e.Name, "a name: letters, digits, '-', '_' and '.', at most 64, the first one a letter or digit")
		return
	}
	p.Policies[e.Name] = text
}

// only is the case of a plan that names none.
const only = "all"

func (r *reader) plan() Plan {
	p := Plan{Name: r.Name, Question: r.Question, Lab: r.Lab, Repeats: r.Repeats, Seed: r.Seed, Takes: r.Takes}
	if len(p.Name) > 64 || !validName.MatchString(p.Name) {
		r.refuse("experiment", p.Name, "a name, such as pg/loss-tail: a-z, 0-9, '-' and one '/', at most 64")
	}
	if r.Version != Version {
		r.refuse("version", strconv.Itoa(r.Version), "1, the version of the form of plans")
	}
	if p.Repeats == 0 {
		p.Repeats = DefaultRepeats
	}
	if p.Repeats < 1 || p.Repeats > MaxRepeats {
		r.refuse("repeats", strconv.Itoa(p.Repeats), "a number from 1 to 100")
	}
	cases := r.varied()
	if len(cases) > MaxCases {
		r.refuse("cases", "", fmt.Sprintf("at most %d cases, not %d", MaxCases, len(cases)))
		return p
	}
	for _, c := range cases {
		p.Cases = append(p.Cases, r.oneCase(c))
	}
	r.quick(&p)
	r.command(&p)
	r.kpis(&p)
	return p
}

func (r *reader) oneCase(k keyedCase) Case {
	key, name, keys := k.key, k.name, k.keys
	within := func(field string) string {
		if key == "" {
			return field
		}
		return key + "." + field
	}
	keys.Load.inherit(r.Load)
	over(&keys.Phases, r.Phases)
	c := Case{
		Name: name, Control: Extent(keys.Phases.Control), Warmup: Extent(keys.Phases.Warmup),
		Fault: Extent(keys.Phases.Fault), Recovery: Extent(keys.Phases.Recovery),
	}
	switch {
	case c.mixed():
		r.refuse(within("phases"), "", "command for control, fault and recovery, or for none of them, and no warm-up beside it")
	case c.Fault.IsZero():
		r.refuse(within("phases.fault"), "", "a number of calls, or a time, such as \"200 calls\" or 8s")
	case c.Warmup.Calls > 0:
		r.refuse(within("phases.warmup"), fmt.Sprintf("%d calls", c.Warmup.Calls), "a time, such as 2s")
	case c.Continuous() && c.Recovery.Calls > 0:
		r.refuse(within("phases.recovery"), fmt.Sprintf("%d calls", c.Recovery.Calls), "a time, as that of the phase fault: one run goes through both")
	case !c.Continuous() && (c.Warmup.For > 0 || c.Recovery.For > 0):
		r.refuse(within("phases.fault"), fmt.Sprintf("%d calls", c.Fault.Calls), "a time, as that of the warm-up or recovery: one run goes through all of them")
	}
	c.Load, c.Policy = keys.Load.request(), keys.Load.Policy
	r.strange(within("load"), keys.Load)
	if !c.Commands() || !reflect.ValueOf(keys.Load).IsZero() {
		r.load(within("load"), c)
	}
	c.Servers = r.servers(within("servers"), keys.Servers)
	faults := r.Faults
	at := "faults"
	if keys.Faults != nil {
		faults, at = keys.Faults, within("faults")
	}
	if len(faults) > MaxFaults {
		r.refuse(at, "", fmt.Sprintf("at most %d faults, not %d", MaxFaults, len(faults)))
		return c
	}
	for i, f := range faults {
		c.Faults = append(c.Faults, r.fault(fmt.Sprintf("%s[%d]", at, i), f, c))
	}
	return c
}

// command is how the command is run, where phases are one.
func (r *reader) command(p *Plan) {
	if !p.Commands() {
		if r.Command != (command{}) {
			r.strangeKey("command", "is of phases that are a command")
		}
		return
	}
	p.Command = Command{Node: r.Command.Node, Limit: cmp.Or(r.Command.Limit, DefaultLimit)}
	if p.Command.Limit < time.Millisecond || p.Command.Limit > MaxExtent {
		r.refuse("command.limit", qdisc.FormatDuration(p.Command.Limit), "a time from 1ms to 24h")
	}
	if p.Command.Node != "" && p.Lab == "" {
		r.refuse("command.node", p.Command.Node, "nothing, or the plan's lab beside it")
	}
}

// mixed reports that some phases are a command and others are not.
func (c Case) mixed() bool {
	for _, e := range []Extent{c.Control, c.Warmup, c.Recovery} {
		if !e.IsZero() && e.Command != c.Fault.Command {
			return true
		}
	}
	return c.Warmup.Command
}

// load has the request's own validation say what is wrong with it.
func (r *reader) load(key string, c Case) {
	if c.Load.Target == "" {
		r.refuse(key+".target", "", "the name of a target")
		return
	}
	try := c.Load
	try.Count = 1
	if try.Open != nil {
		try.Duration = MaxExtent
		try.Count = 0
	}
	for _, e := range each(try.Validate()) {
		if f, ok := errors.AsType[*probe.RequestError](e); ok {
			r.refuse(key+"."+f.Field, f.Value, f.Want)
		} else {
			r.errs = append(r.errs, e)
		}
	}
}

func (r *reader) kpis(p *Plan) {
	if len(r.KPIs) > MaxKPIs || len(r.KPIs) == 0 {
		r.refuse("kpis", "", fmt.Sprintf("1 to %d conditions, not %d", MaxKPIs, len(r.KPIs)))
		return
	}
	for i, k := range r.KPIs {
		c := Criterion{KPI: kpi.KPI(k.Must), Why: k.Why, Reference: k.Reference}
		key := fmt.Sprintf("kpis[%d].must", i)
		for _, ref := range c.Refs() {
			r.ref(key, *p, ref)
		}
		p.KPIs = append(p.KPIs, c)
	}
}

// ref looks whether there is what a KPI asks for.
func (r *reader) ref(key string, p Plan, ref kpi.Ref) {
	r.selector(key, p, ref)
	cases := p.Cases
	if ref.Case != "" {
		c, ok := p.Case(ref.Case)
		if !ok {
			r.refuse(key, ref.Case, "the name of a case")
			return
		}
		cases = []Case{c}
	}
	for _, c := range cases {
		extent := map[string]Extent{kpi.Control: c.Control, kpi.Warmup: c.Warmup, kpi.Fault: c.Fault, kpi.Recovery: c.Recovery}[ref.Phase]
		if metric := ref.Metric; slices.Contains(kpi.OfCommands, metric) && !c.Commands() {
			r.refuse(key, metric, fmt.Sprintf("a number of calls, since the phases of the case %s are no command", c.Name))
			return
		}
		if extent.IsZero() && !c.Fault.IsZero() {
			r.refuse(key, ref.Phase, fmt.Sprintf("a phase that the case %s has", c.Name))
			return
		}
	}
}

// over gives each field of to that is zero the value of from.
func over[T any](to *T, from T) {
	v, w := reflect.ValueOf(to).Elem(), reflect.ValueOf(from)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			v.Field(i).Set(w.Field(i))
		}
	}
}

// each are the errors of a validation.
func each(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the validation's own
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, each(e)...)
		}
		return all
	}
	return []error{err}
}

// below gives the fields of err their place.
func below(key string, err error) error {
	var errs []error
	for _, e := range each(err) {
		if f, ok := errors.AsType[*qdisc.FieldError](e); ok {
			named := *f
			named.Field = key
			if f.Field != "" && !strings.HasSuffix(key, "."+f.Field) {
				named.Field += "." + f.Field
			}
			e = &named
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
