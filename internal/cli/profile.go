package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/profile"
	"netemd/qdisc"
)

// whose is at whose end of the path a profile's link is.
type whose string

const (
	ofClient whose = "client"
	ofTarget whose = "target"
)

// profiled is what a command line says of a profile.
type profiled struct {
	name string
	link whose
}

const wantProfile = "the name of a profile, as 'netemctl profile list' shows it, or the path of a file with one"

func (a *app) profileFlags(cmd *cobra.Command, p *profiled) {
	cmd.Flags().Var(once(&p.name, "NAME|FILE", wantProfile), "profile", "begin with this profile's impairments; other flags override it; impairs both directions unless --direction says otherwise")
	p.link = ofClient
	one(cmd, &p.link, "link-of", "whose access link the profile is: the client's, so that packets to the target pass its uplink, or the target's", ofClient, ofTarget)
	_ = cmd.RegisterFlagCompletionFunc("profile", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if isPath(typed) {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return beginning(a.profileNames(cmd.Context()), typed), cobra.ShellCompDirectiveNoFileComp
	})
}

// isPath tells the path of a file from a name: no name has a slash or ends like a YAML file.
func isPath(s string) bool {
	return strings.ContainsRune(s, '/') || strings.HasSuffix(s, ".yaml") || strings.HasSuffix(s, ".yml")
}

// findProfile finds a profile: in a file, among the built-in ones, or in the agent's
// configuration, which alone needs an agent.
func (a *app) findProfile(ctx context.Context, name string) (profile.Profile, error) {
	if isPath(name) {
		text, err := a.fileText(ctx, "profile", name)
		if err != nil {
			return profile.Profile{}, err
		}
		return profile.Parse(name, text)
	}
	if p, ok := profile.Find(name); ok {
		return p, nil
	}
	own, err := a.agentProfiles(ctx)
	for _, p := range own {
		if p.Name == name {
			return p, nil
		}
	}
	unknown := fmt.Errorf("unknown profile %q, known: %s", name, strings.Join(namesOf(own), ", "))
	if err != nil {
		unknown = fmt.Errorf("%w; what the agent's configuration has is not known: %w", unknown, err)
	}
	return profile.Profile{}, fault.WithHint(unknown, "a file is named by its path, such as ./"+name+".yaml")
}

// namesOf are the built-in ones and own.
func namesOf(own []profile.Profile) []string {
	names := profile.Names()
	for _, p := range own {
		names = append(names, p.Name)
	}
	return names
}

func (a *app) agentProfiles(ctx context.Context) ([]profile.Profile, error) {
	agent, err := a.dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = agent.Close() }()
	ctx, cancel := context.WithTimeout(ctx, kernelWait)
	defer cancel()
	return agent.Profiles(ctx)
}

func (a *app) profileNames(ctx context.Context) []string {
	own, _ := a.agentProfiles(ctx) // without an agent the others are all
	return namesOf(own)
}

func (a *app) profile() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "profile", Short: "Impairments with a name, and where their numbers come from",
		Long: `Impairments with a name, and where their numbers come from: '3g', 'satellite',
'transatlantic' and so on, for 'apply --profile NAME'. A profile is about an access link.
Unless --link-of target is said it is the client's: packets to the target pass the uplink,
those from it the downlink. Delays are one way. Own profiles come from files
('apply --profile ./mine.yaml') and from 'profiles' in the agent's configuration.`,
	})
	cmd.AddCommand(a.profileList(), a.profileShow())
	return cmd
}

func (a *app) profileList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the profiles", Long: "List the built-in profiles, and those of the agent's configuration where one answers.",
		Args: arguments(0, ""), DisableFlagsInUseLine: true, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			all := profile.Builtins()
			own, _ := a.agentProfiles(cmd.Context()) // none is needed for the others
			all = append(all, own...)
			data := struct {
				Profiles []profileView `json:"profiles"`
			}{}
			for _, p := range all {
				data.Profiles = append(data.Profiles, viewProfile(p))
			}
			return a.emit(answer{kind: "profiles", data: data, lines: anys(data.Profiles), table: func(w io.Writer, s style) {
				t := table{head: []string{"PROFILE", "UPLINK", "DOWNLINK", "WHAT IT IS"}}
				for _, p := range all {
					t.add(s.bold(p.Name), brief(p.Uplink), brief(p.Downlink), p.Summary)
				}
				t.write(w, s)
			}})
		}),
	}
}

// brief is an impairment without the size of its queue.
func brief(n qdisc.Netem) string {
	n.Limit = 0
	return n.String()
}

func (a *app) profileShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME|FILE", Short: "Show a profile with its sources", Long: "Show a profile with its sources.",
		Args: arguments(1, "NAME"), DisableFlagsInUseLine: true,
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return beginning(a.profileNames(cmd.Context()), typed), cobra.ShellCompDirectiveDefault
	}
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		p, err := a.findProfile(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.emit(answer{kind: "profile", data: viewProfile(p), table: func(w io.Writer, s style) {
			fmt.Fprintf(w, "%s: %s\n", s.bold(p.Name), p.Summary)
			pairs(w, s, [][2]string{
				{"uplink", p.Uplink.String() + queueText(p.Uplink)}, {"downlink", p.Downlink.String() + queueText(p.Downlink)},
				{"delays", "one way"}, {"side", "the client's link: packets to the target pass the uplink (--link-of target turns it round)"},
			})
			for _, src := range p.Sources {
				fmt.Fprintln(w)
				wrap(w, strings.TrimSpace("source: "+src.Title+year(src.Year)))
				if src.URL != "" {
					fmt.Fprintln(w, "  "+src.URL)
				}
				if src.Says != "" {
					wrap(w, "  "+src.Says)
				}
			}
		}})
	})
	return cmd
}

func year(y string) string {
	if y == "" {
		return ""
	}
	return " (" + y + ")"
}

// queueText says how long the queue before a rate is, in time.
func queueText(n qdisc.Netem) string {
	if n.Rate == 0 {
		return ""
	}
	return fmt.Sprintf("  (the queue holds %s at that rate)", short(n.QueueTime()-n.Delay))
}

// profileView is a profile as JSON.
type profileView struct {
	Name     string       `json:"name"`
	Summary  string       `json:"summary"`
	Uplink   *packetView  `json:"uplink"`
	Downlink *packetView  `json:"downlink"`
	Sources  []sourceView `json:"sources"`
}

type sourceView struct {
	Title string `json:"title"`
	URL   string `json:"url"`
	Year  string `json:"year"`
	Says  string `json:"says"`
}

func viewProfile(p profile.Profile) profileView {
	v := profileView{Name: p.Name, Summary: p.Summary, Uplink: viewPacket(p.Uplink), Downlink: viewPacket(p.Downlink), Sources: []sourceView{}}
	for _, s := range p.Sources {
		v.Sources = append(v.Sources, sourceView(s))
	}
	return v
}

// fillProfile gives spec the impairments of a profile with what the flags say instead. The
// direction is both where none was said.
func (f *packetFlags) fillProfile(a *app, cmd *cobra.Command, spec *fault.Spec) error {
	p, err := a.findProfile(cmd.Context(), f.profiled.name)
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed("direction") {
		spec.Direction = fault.Both
	}
	to, from := p.Toward(f.profiled.link == ofTarget)
	if to, err = f.over(cmd.Context(), a, to, true); err != nil {
		return err
	}
	if from, err = f.over(cmd.Context(), a, from, false); err != nil {
		return err
	}
	spec.Profile = p.Name
	switch {
	case spec.Direction == fault.From:
		spec.Packet = &from
	case spec.Direction == fault.Both && to != from:
		spec.Packet, spec.PacketFrom = &to, &from
	default:
		spec.Packet = &to
	}
	return nil
}

// over is base with what the flags say; tell says how the queue was sized. A queue that the
// profile sized is sized anew by netemd where the rate or the delay is another one.
func (f *packetFlags) over(ctx context.Context, a *app, base qdisc.Netem, tell bool) (qdisc.Netem, error) {
	patch, notes, err := f.resolve(ctx, base)
	if err != nil {
		return base, err
	}
	if tell {
		for _, n := range notes {
			a.say("%s", n)
		}
	}
	n := patch.Apply(base)
	if patch.Limit == nil && (n.Rate != base.Rate || n.Delay != base.Delay) {
		n.Limit = 0
	}
	return n, nil
}

// checkSources refuses a profile and a schedule together, and beside a schedule what it says
// itself.
func (f *packetFlags) checkSources(cmd *cobra.Command) error {
	switch {
	case f.schedule == "" && f.profiled.name == "":
		if cmd.Flags().Changed("link-of") {
			return usageError{errors.New("--link-of: needs --profile")}
		}
		return nil
	case f.schedule == "":
		return nil
	case f.profiled.name != "":
		return fault.WithHint(usageError{errors.New("want one of --profile and --schedule, not both")}, "a step of a schedule may name a profile: {for: 10s, profile: 3g}")
	case f.verify:
		return usageError{errors.New("--verify: a schedule changes what would be measured; verify its steps as faults of their own")}
	}
	rest := f.asked
	rest.patch.Seed = nil
	if rest.says() {
		return fault.WithHint(usageError{errors.New("--schedule: its steps say the impairments, and no flag does")}, "write them in the file; --seed alone may stand beside it")
	}
	return nil
}
