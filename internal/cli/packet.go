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
	target    string
	direction fault.Direction
	engine    fault.Engine
	ttl       time.Duration
	dryRun    bool
	patch     qdisc.Patch
}

const dashUse = " --target NAME [flags] [-- CMD...]"

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
	cmd := &cobra.Command{Use: use + dashUse, Short: short, Long: long, DisableFlagsInUseLine: true}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := a.argumentsAndCommand(count, form(cmd))(cmd, args); err != nil {
			return err
		}
		if count == 0 {
			return nil
		}
		return withHint(parse(&f.patch, args[0]), seeHelp(cmd))
	}
	if count == 1 {
		a.positional[cmd] = func(s string) error { return parse(&qdisc.Patch{}, s) }
	}
	i := bind(cmd, &f.patch)
	flags(i)
	i.common()
	a.spotFlags(cmd, &f.target, &f.ttl, &f.dryRun)
	a.wayFlags(cmd, &f.direction, &f.engine)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		spec, err := f.spec()
		if err != nil {
			return err
		}
		return a.runFault(cmd, spec, f.dryRun, dashed(cmd, args))
	})
	return cmd
}

// spotFlags are the flags of every fault.
func (a *app) spotFlags(cmd *cobra.Command, target *string, ttl *time.Duration, dryRun *bool) {
	cmd.Flags().StringVar(target, "target", "", "`NAME` of the target; required")
	a.completeTargets(cmd)
	cmd.Flags().Var(typed(ttl, "TIME", positive, nil), "ttl", "end the fault by itself after this time (default 10m; with -- CMD when CMD ends)")
	if dryRun != nil {
		cmd.Flags().BoolVar(dryRun, "dry-run", false, "say what would be done; needs neither root nor an agent")
	}
}

// wayFlags are the flags of packet faults.
func (a *app) wayFlags(cmd *cobra.Command, direction *fault.Direction, engine *fault.Engine) {
	*direction, *engine = fault.To, fault.Auto
	one(cmd, direction, "direction", "packets that go to the target, that come from it, or both", fault.To, fault.From, fault.Both)
	one(cmd, engine, "engine", "what carries the fault out; auto takes netem where the kernel has it", fault.Auto, fault.Netem, fault.EBPF)
}

func (f packetFlags) spec() (fault.Spec, error) {
	if f.target == "" {
		return fault.Spec{}, errNoTarget
	}
	if err := f.patch.Validate(); err != nil {
		return fault.Spec{}, err
	}
	n := f.patch.Apply(qdisc.Netem{})
	spec := fault.Spec{Target: f.target, Direction: f.direction, Engine: f.engine, Packet: &n, TTL: f.ttl}
	return spec, spec.Validate()
}

var errNoTarget = hinted{
	usageError{errors.New("--target: want the name of a target")}, "list them with: netemctl target list",
}

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

func (a *app) partition() *cobra.Command {
	cmd := a.packetCommand("partition", "", "Drop every packet", `Drop every packet: "loss 100%".`, nil,
		func(i impairment) { all := qdisc.Percent(100); i.patch.Loss = &all })
	return cmd
}

func (a *app) apply() *cobra.Command {
	return a.packetCommand("apply", "", "Several impairments at once",
		"Several impairments at once, as one fault.",
		nil, impairment.all)
}
