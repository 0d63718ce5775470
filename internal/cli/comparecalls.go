package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"netemd/internal/client"
	"netemd/internal/experiment"
	"netemd/internal/report"
	"netemd/probe"
)

// comparedCalls are the calls of a comparison: those of any kind of probe.
type comparedCalls struct {
	loadFlags
	kind string
	// given are the options of kinds, as texts, in the order of the command line; they are
	// understood when the kind is known.
	given []givenOption
}

type givenOption struct{ name, text string }

// add adds the flags; the fault's own are there already.
func (c *comparedCalls) add(cmd *cobra.Command) {
	c.kind = probe.KindPostgres
	one(cmd, &c.kind, "probe", "kind of the calls", kindNames()...)
	c.addShared(cmd)
	rate := cmd.Flags().Lookup("rate")
	rate.Value = &splitRate{Value: rate.Value, calls: typed(&c.rate, "RATE", parseCallRate, nil)}
	rate.Usage += "; or, as 100/s, an open loop of so many calls a second"
	cmd.Flags().Lookup("seed").Usage += "; the arrivals' and the policy's, too"
	for _, o := range kindOptions() {
		f := *o.flag
		text := &optionText{of: c, name: f.Name, form: f.Value.Type()}
		f.Value = text
		f.Usage = strings.Join(o.kinds, ", ") + ": " + f.Usage
		if len(o.kinds) > 1 {
			f.Usage = strings.Join(o.kinds, ", ") + ": see 'netemctl probe KIND --help'"
			if strings.Contains(text.form, "|") {
				text.form = strings.ToUpper(f.Name) // the words are others in each
			}
		}
		f.DefValue = "" // each kind has its own
		if text.form == "bool" {
			f.DefValue = "false"
		}
		cmd.Flags().AddFlag(&f)
	}
	completeWords(cmd, "mode", optionWords("mode"))
	completeWords(cmd, "http", optionWords("http"))
	_ = cmd.RegisterFlagCompletionFunc("policy", completePolicies(cobra.ShellCompDirectiveDefault))
}

func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// kindOption is an option of some kinds, as the first of them has it.
type kindOption struct {
	flag  *pflag.Flag
	kinds []string
}

// optionsOf are a kind's own options, and the request that they fill.
func optionsOf(k kind) (*cobra.Command, *probe.Request) {
	cmd, r := &cobra.Command{Use: k.name}, &probe.Request{Kind: k.name}
	k.options(cmd, r)
	return cmd, r
}

func kindOptions() (all []kindOption) {
	for _, k := range kinds {
		cmd, _ := optionsOf(k)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			at := slices.IndexFunc(all, func(o kindOption) bool { return o.flag.Name == f.Name })
			if at < 0 {
				all = append(all, kindOption{f, []string{k.name}})
				return
			}
			all[at].kinds = append(all[at].kinds, k.name)
		})
	}
	return all
}

// optionWords are the words of an option of any kind.
func optionWords(name string) (words []string) {
	for _, k := range kinds {
		cmd, _ := optionsOf(k)
		if f := cmd.Flags().Lookup(name); f != nil {
			words = append(words, strings.Split(f.Value.Type(), "|")...)
		}
	}
	return words
}

// request is what the flags say of the calls.
func (c *comparedCalls) request(a *app, cmd *cobra.Command) (probe.Request, error) {
	k := kinds[slices.Index(kindNames(), c.kind)]
	options, r := optionsOf(k)
	for _, g := range c.given {
		if options.Flags().Lookup(g.name) == nil {
			return *r, a.flagError(cmd, usageError{fmt.Errorf("--%s is of %s, and the calls are of %s: say --probe, too", g.name, kindsWith(g.name), k.name)})
		}
		if err := options.Flags().Set(g.name, g.text); err != nil {
			return *r, a.flagError(cmd, err)
		}
	}
	if err := c.into(cmd, r); err != nil {
		return *r, err
	}
	r.Target, r.Layer = "-", "" // the rows'
	err := r.Validate()
	r.Target = ""
	return *r, err
}

// kindsWith says which kinds have an option.
func kindsWith(name string) string {
	for _, o := range kindOptions() {
		if o.flag.Name == name {
			return either(o.kinds)
		}
	}
	return "no kind"
}

// optionText keeps an option for later. form is how the help calls its value.
type optionText struct {
	of         *comparedCalls
	name, form string
}

func (o *optionText) Set(s string) error {
	o.of.given = append(o.of.given, givenOption{o.name, s})
	return nil
}

func (o *optionText) Type() string   { return o.form }
func (o *optionText) String() string { return "" }

// splitRate is a flag that is the fault's rate, or that of the calls when it ends in /s.
type splitRate struct {
	pflag.Value
	calls pflag.Value
}

func (r *splitRate) Set(s string) error {
	if strings.HasSuffix(s, "/s") {
		return r.calls.Set(s)
	}
	return r.Value.Set(s)
}

// rowProber makes the calls of a comparison's rows, and keeps what happened to faults meanwhile.
type rowProber struct {
	agent ProbeRunner
	run   client.ProbeRun
	// exporter is nil without a collector.
	exporter *report.Exporter

	mu     sync.Mutex
	told   []experiment.Event
	offset time.Duration
}

// happened takes an event of a fault.
func (p *rowProber) happened(e experiment.Event) {
	if p.exporter != nil {
		p.exporter.AddEvent(e)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, e)
}

// events are all of them, on the samples' clock.
func (p *rowProber) events() []experiment.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range p.told {
		p.told[i] = e.On(p.offset)
	}
	return p.told
}

// Probe implements experiment.Prober.
func (p *rowProber) Probe(ctx context.Context, row string, r probe.Request, progress func(done, count int)) (probe.Result, error) {
	var samples []probe.Sample
	count := 0
	run := p.run
	run.Progress = func(at probe.Progress) { progress(at.Done, at.Count) }
	send := func([]byte, time.Duration) {}
	if p.exporter != nil && row != "" {
		as := r
		as.Layer = row
		send = p.exporter.Of(as)
	}
	run.Samples = func(lines []byte, offset time.Duration) error {
		send(lines, offset)
		p.mu.Lock()
		p.offset = offset
		p.mu.Unlock()
		return client.EachSample(lines, func(s probe.Sample) error {
			if count++; count > probe.DefaultKeep {
				samples = nil // a part of them would be read as the whole
				return nil
			}
			samples = append(samples, s)
			return nil
		})
	}
	result, err := p.agent.RunProbe(ctx, r, run)
	probe.BySeq(samples)
	result.Samples = samples
	return result, err
}
