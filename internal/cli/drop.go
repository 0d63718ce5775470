package cli

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// contentFlags are the flags of drop and hold.
type contentFlags struct {
	spot
	rule    content.Rule
	engine  fault.Engine
	force   []string
	offload string
	lasting
	dryRun bool
}

const contentLong = `WHAT is one of
  syn, synack    the first, the second packet of a TCP handshake
  fin, rst       what ends a TCP connection
  data:N         the N-th segment of a TCP connection that carries data, in one
                 direction, and each retransmission of it
  retransmit     TCP segments with data, SYN or FIN that were seen before
  every:N        each N-th packet of any protocol
  match 'EXPR'   what an expression says, such as 'tcp.len > 100 && !tcp.fin'
All other packets pass as if there were no fault. 'netemctl packets ID' says which were
chosen. Without --count there is no end but the fault's own.

EXPR is written as in Go, with numbers (20, 0x14, 'Q'), + - & |, == != < <= > >=,
&& || ! and parentheses. payload[0] is a byte behind the TCP or UDP header, and
payload.at(0, "Q") is true where the text begins. What a packet does not have makes a
comparison false. The fields are
`

// contentHelp is contentLong with the fields.
func contentHelp() string {
	var b strings.Builder
	b.WriteString(contentLong)
	line := " "
	for _, name := range content.FieldNames() {
		if len(line)+1+len(name) > helpWidth {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + name
	}
	return b.String() + line
}

// helpWidth is where the help breaks its lines.
const helpWidth = 88

// drop and hold are two commands for one thing: what becomes of chosen packets.
func (a *app) drop() *cobra.Command {
	return a.contentCommand("drop", "Drop exactly the packets that are said", `Drop exactly the packets that are said, the same ones each time, where "loss 20%" leaves
it to chance which.

`+contentHelp(), false)
}

func (a *app) hold() *cobra.Command {
	return a.contentCommand("hold", "Hold exactly the packets that are said for a time", `Hold exactly the packets that are said for a time; others overtake them meanwhile.

`+contentHelp(), true)
}

// contentUse is how both are written.
const contentUse = " WHAT --target NAME | --dev DEV [flags] [-- CMD...]"

func (a *app) contentCommand(name, short, long string, hold bool) *cobra.Command {
	var f contentFlags
	cmd := &cobra.Command{Use: name + contentUse, Short: short, Long: long, DisableFlagsInUseLine: true, ValidArgsFunction: completeWhat}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		own := args[:len(args)-len(dashed(cmd, args))]
		n := max(1, len(own))
		if len(own) > 0 && !strings.EqualFold(strings.TrimSpace(own[0]), string(content.Match)) {
			n = 1
		}
		if err := a.argumentsAndCommand(n, form(cmd))(cmd, args); err != nil {
			return err
		}
		what, err := content.Parse(own)
		if err != nil {
			about := name
			var f *qdisc.FieldError
			if errors.As(err, &f) && f.Field == "expr" {
				about += " match"
			}
			return fault.WithHint(named(about, err, strings.Join(own, " ")), seeHelp(cmd))
		}
		f.rule.Kind, f.rule.N, f.rule.Expr = what.Kind, what.N, what.Expr
		return nil
	}
	flags := cmd.Flags()
	if hold {
		flags.Var(typed(&f.rule.Hold, "TIME", holdTime, nil), "for", "hold them for this long, such as 200ms; required")
	}
	flags.Var(typed(&f.rule.Count, "N", unsigned[uint32](32, 1), nil), "count", "rest after this many packets (default no end); in both directions each counts by itself")
	flags.BoolVar(&f.rule.PerConnection, "per-connection", false, "have --count, or the N of every:N, for each connection by itself")
	a.spotFlags(cmd, &f.target, &f.lasting, &f.dryRun)
	a.trafficFlags(cmd, &f.spot)
	f.engine = fault.Auto
	one(cmd, &f.engine, "engine", "only ebpf acts on chosen packets; auto takes it", fault.Auto, fault.Netem, fault.EBPF)
	safetyFlags(cmd, &f.force, &f.offload)
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		spec, err := f.spec(a, cmd)
		if err != nil {
			return err
		}
		return a.runFault(cmd, spec, handling{dryRun: f.dryRun}, dashed(cmd, args))
	})
	return cmd
}

func (f *contentFlags) spec(a *app, cmd *cobra.Command) (fault.Spec, error) {
	spec := fault.Spec{Engine: f.engine, Force: f.force, Offload: f.offload, SSHConnection: a.env.SSHConnection()}
	f.fillSpec(&spec)
	if cmd.Flags().Lookup("for") != nil && f.rule.Hold == 0 {
		return spec, fault.WithHint(usageError{errNoTime}, "write: --for 200ms")
	}
	if err := f.fill(cmd, &spec); err != nil {
		return spec, err
	}
	rule := f.rule
	spec.Content = &rule
	return spec, hintUnsupported(contentFields(spec.Validate()), spec)
}

// holdTime is how long a packet can be held.
func holdTime(s string) (time.Duration, error) {
	d, err := qdisc.ParseDuration(s)
	if err == nil && (d < content.MinHold || d > content.MaxHold) || zero(s) {
		return 0, &qdisc.FieldError{Value: s, Want: "a duration from " + content.HoldRange() + ", such as 200ms"}
	}
	return d, err
}

var errNoTime = errors.New("hold: --for is required")

// contentFlag are the flags of what can be wrong with a rule.
var contentFlag = map[string]string{"count": "--count", "per_connection": "--per-connection", "hold": "--for"}

// contentFields gives the errors of a rule the names of the flags.
func contentFields(err error) error {
	return qdisc.Renamed(err, func(field string) string { return cmp.Or(contentFlag[field], field) })
}

// completeWhat completes what is chosen.
func completeWhat(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return beginning([]string{
		"syn\tthe first packet of a TCP handshake",
		"synack\tthe second packet of a TCP handshake",
		"fin\tthe end of a TCP connection",
		"rst\tthe reset of a TCP connection",
		"data:1\tthe N-th data segment of a TCP connection",
		"retransmit\tTCP segments that were sent before",
		"every:2\teach N-th packet of any protocol",
		"match\twhat an expression says",
	}, typed), cobra.ShellCompDirectiveNoFileComp
}
