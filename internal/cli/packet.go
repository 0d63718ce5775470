package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// packetFlags are the flags of every command that makes a packet fault.
type packetFlags struct {
	asked
	spot
	engine  fault.Engine
	force   []string
	offload string
	lasting
	handling
	profiled profiled
	// schedule is the path of a timetable, instead of an impairment.
	schedule string
}

// lasting is from when on, how long and how firmly a fault stands.
type lasting struct {
	ttl, wait time.Duration
	repair    bool
	reattach  bool
}

// fillSpec puts it into a spec.
func (l lasting) fillSpec(s *fault.Spec) {
	s.TTL, s.Wait, s.Repair, s.Reattach = l.ttl, l.wait, l.repair, l.reattach
}

const (
	dashUse   = " --target NAME [flags] [-- CMD...]"
	packetUse = " --target NAME | --dev DEV [flags] [-- CMD...]"
)

// packetCommand makes a command for one impairment. parse reads its argument into
// the patch; nil means that it takes none.
func (a *app) packetCommand(
	name, argument, short, long string, parse func(*qdisc.Patch, string) error, flags func(impairment),
) *cobra.Command {
	var f packetFlags
	use, count := name, 0
	if argument != "" {
		use, count = name+" "+argument, 1
	}
	cmd := &cobra.Command{Use: use + packetUse, Short: short, Long: long, DisableFlagsInUseLine: true}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := a.argumentsAndCommand(count, form(cmd))(cmd, args); err != nil {
			return err
		}
		if count == 0 {
			return nil
		}
		return fault.WithHint(parse(&f.patch, args[0]), seeHelp(cmd))
	}
	if count == 1 {
		a.positional[cmd] = func(s string) error { return parse(&qdisc.Patch{}, s) }
	}
	i := bind(cmd, &f.asked)
	flags(i)
	i.common()
	i.done(name == "apply")
	if name == "apply" {
		a.profileFlags(cmd, &f.profiled)
		scheduleFlag(cmd, &f.schedule)
	}
	a.spotFlags(cmd, &f.target, &f.lasting, &f.dryRun)
	a.trafficFlags(cmd, &f.spot)
	engineFlag(cmd, &f.engine)
	safetyFlags(cmd, &f.force, &f.offload)
	cmd.Flags().BoolVar(&f.verify, "verify", false, "send packets through the fault and compare, as 'netemctl verify' does")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		if f.verify && f.dryRun {
			return usageError{errors.New("want one of --verify and --dry-run, not both")}
		}
		spec, err := f.spec(a, cmd)
		if err != nil {
			return err
		}
		return a.runFault(cmd, spec, f.handling, dashed(cmd, args))
	})
	return cmd
}

// spotFlags are the flags of every fault.
func (a *app) spotFlags(cmd *cobra.Command, target *string, l *lasting, dryRun *bool) {
	usage := "`NAME` of the target; required"
	if dryRun != nil {
		usage = "`NAME` of the target"
	}
	cmd.Flags().Var(once(target, "NAME", wantTarget), "target", usage)
	a.completeTargets(cmd)
	cmd.Flags().Var(typed(&l.ttl, "TIME", positive, nil), "ttl", "end the fault by itself after this time, also while CMD runs (default 10m; with -- CMD when CMD ends)")
	cmd.Flags().Var(typed(&l.wait, "TIME", positive, nil), "wait", "wait up to this time for the end of a fault that is in the way")
	cmd.Flags().BoolVar(&l.repair, "repair", false, "put the fault back when somebody else changes or removes it")
	cmd.Flags().BoolVar(&l.reattach, "reattach", false, "when the target goes and comes back, as a restarted container does, put the fault where it is then")
	if dryRun != nil {
		cmd.Flags().BoolVar(dryRun, "dry-run", false, "say what would be done; needs neither root nor an agent")
	}
}

func engineFlag(cmd *cobra.Command, engine *fault.Engine) {
	*engine = fault.Auto
	one(cmd, engine, "engine", "what carries the fault out; auto takes netem where the kernel has it", fault.Auto, fault.Netem, fault.EBPF)
}

// spec is the fault that is asked for. It tells how the queue was sized.
func (f *packetFlags) spec(a *app, cmd *cobra.Command) (fault.Spec, error) {
	spec := fault.Spec{Engine: f.engine, Force: f.force, Offload: f.offload, SSHConnection: a.env.SSHConnection()}
	f.fillSpec(&spec)
	if err := f.checkSources(cmd); err != nil {
		return spec, err
	}
	if err := f.fill(cmd, &spec); err != nil {
		return spec, err
	}
	switch {
	case f.profiled.name != "":
		if err := f.fillProfile(a, cmd, &spec); err != nil {
			return spec, err
		}
		return spec, spec.Validate()
	case f.schedule != "":
		if err := f.fillSchedule(a, cmd, &spec); err != nil {
			return spec, err
		}
		return spec, spec.Validate()
	}
	patch, notes, err := f.resolve(cmd.Context(), qdisc.Netem{})
	if err != nil {
		return spec, err
	}
	for _, n := range notes {
		a.say("%s", n)
	}
	n := patch.Apply(qdisc.Netem{})
	spec.Packet = &n
	return spec, spec.Validate()
}

var errNoTarget = fault.WithHint(
	usageError{errors.New("--target: want the name of a target")}, "list them with: netemctl target list",
)

func setPercent(name string, field func(*qdisc.Patch) **qdisc.Percent) func(*qdisc.Patch, string) error {
	return func(p *qdisc.Patch, s string) error {
		v, err := qdisc.ParsePercent(s)
		if err != nil {
			return named(name, err, s)
		}
		*field(p) = &v
		return nil
	}
}

func (a *app) loss() *cobra.Command {
	return a.packetCommand("loss", "PERCENT", "Drop a share of the packets",
		`Drop a share of the packets, one way: "loss 20%" with the default direction drops
20 % of the packets that go to the target, and none of the answers.`,
		setPercent("loss", func(p *qdisc.Patch) **qdisc.Percent { return &p.Loss }), impairment.lossRest)
}

func (a *app) delay() *cobra.Command {
	return a.packetCommand("delay", "TIME", "Hold every packet for a time",
		`Hold every packet for a time, one way: "delay 100ms" makes a round trip 100 ms
longer, not 200 ms, unless --direction both is given.`,
		func(p *qdisc.Patch, s string) error {
			d, err := qdisc.ParseDuration(s)
			if err != nil {
				return named("delay", err, s)
			}
			p.Delay = &d
			return nil
		}, impairment.delayRest)
}

func (a *app) reorder() *cobra.Command {
	return a.packetCommand("reorder", "PERCENT", "Send a share of the packets ahead of the others",
		`Send a share of the packets at once while the others are held for --delay, so that
they overtake them.`,
		setPercent("reorder", func(p *qdisc.Patch) **qdisc.Percent { return &p.Reorder }),
		func(i impairment) { i.delay(); i.delayRest(); i.reorderRest() })
}

func (a *app) duplicate() *cobra.Command {
	return a.packetCommand("duplicate", "PERCENT", "Send a share of the packets twice", "Send a share of the packets twice.",
		setPercent("duplicate", func(p *qdisc.Patch) **qdisc.Percent { return &p.Duplicate }), impairment.duplicateRest)
}

func (a *app) corrupt() *cobra.Command {
	return a.packetCommand("corrupt", "PERCENT", "Flip a bit in a share of the packets",
		`Flip one random bit in a share of the packets. Checksums catch it, so that a TCP
client sees a loss.`,
		setPercent("corrupt", func(p *qdisc.Patch) **qdisc.Percent { return &p.Corrupt }), impairment.corruptRest)
}

func (a *app) rate() *cobra.Command {
	return a.packetCommand("rate", "RATE", "Let packets leave at a rate",
		`Let packets leave at a rate, such as 10mbit (bits) or 1MBps (bytes). What comes
faster waits, at most 1s or what --queue says, and is dropped beyond that.`,
		func(p *qdisc.Patch, s string) error {
			r, err := qdisc.ParseRate(s)
			if err != nil {
				return named("rate", err, s)
			}
			p.Rate = &r
			return nil
		}, impairment.rateRest)
}

func (a *app) partition() *cobra.Command {
	cmd := a.packetCommand("partition", "", "Drop every packet", `Drop every packet: "loss 100%".`, nil,
		func(i impairment) { all := qdisc.Percent(100); i.asked.patch.Loss = &all })
	return cmd
}

func (a *app) apply() *cobra.Command {
	return a.packetCommand("apply", "", "Several impairments at once",
		`Several impairments at once, as one fault. --tc takes netem's own syntax; what it
does not name, the limit too, is as it would be without it, not tc's default. --profile
begins with an impairment with a name ('netemctl profile list'), --schedule changes the
impairment by a timetable.`,
		nil, impairment.all)
}
