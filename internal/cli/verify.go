package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fidelity"
	"netemd/qdisc"
)

// errFailed ends a command whose verdict is "fail", which is told before.
var errFailed = errors.New("failed")

// verifyTimeout is the cause of a verification that took too long.
type verifyTimeout struct{ limit string }

func (e verifyTimeout) Error() string { return "not done within --timeout " + e.limit }

func (a *app) verify() *cobra.Command {
	var o fidelity.Options
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "verify ID [flags]", Short: "Compare what a packet fault does with what was asked for", DisableFlagsInUseLine: true,
		Long: `Send numbered packets through a packet fault, and compare what arrives with what was
asked for: shares with their confidence intervals, quantiles of the delay, lengths of
bursts, the rate. It exits 3 when the fault does something else, and 4 when that
cannot be told.`,
		Args: arguments(1, "ID"), ValidArgsFunction: a.completeFaults,
	}
	cmd.Flags().VarP(typed(&o.Packets, "N", integer(fidelity.MinPackets, fidelity.MaxPackets), nil), "count", "n",
		fmt.Sprintf("packets for each place (default %d)", fidelity.DefaultPackets))
	cmd.Flags().Var(typed(&o.Rate, "N", integer(1, fidelity.MaxRate), nil), "rate",
		fmt.Sprintf("packets per second (default %d)", fidelity.DefaultRate))
	cmd.Flags().Var(typed(&limit, "TIME", positive, nil), "timeout", "give up after this time (default none)")
	cmd.RunE = a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
		ctx := cmd.Context()
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, limit, verifyTimeout{qdisc.FormatDuration(limit)})
			defer cancel()
		}
		r, err := a.runVerify(ctx, agent, args[0], o)
		if err != nil {
			return err
		}
		if err := a.emit(answer{kind: "verification", data: r, table: verifyText(r)}); err != nil {
			return err
		}
		return verdictError(r)
	})
	return cmd
}

// runVerify verifies a fault and tells how far it is.
func (a *app) runVerify(ctx context.Context, agent Agent, id string, o fidelity.Options) (fidelity.Result, error) {
	p := a.progress()
	p.unit = "packets"
	r, err := agent.Verify(ctx, id, o, func(sent, packets int) { p.step("verifying "+id, sent, packets) })
	p.end()
	var late verifyTimeout
	if err != nil && errors.As(context.Cause(ctx), &late) {
		return r, fmt.Errorf("verify %s: %w: %w", id, errInconclusive, late)
	}
	return r, err
}

// verdictError makes the exit code of a verdict; the verdict itself is told.
func verdictError(r fidelity.Result) error {
	switch r.Verdict {
	case fidelity.Pass:
		return nil
	case fidelity.Fail:
		return fmt.Errorf("verify %s: %w: %s", r.Fault, errFailed, r.Reason)
	}
	return fmt.Errorf("verify %s: %w: %s", r.Fault, errInconclusive, r.Reason)
}

// verifyText is a verification for people.
func verifyText(r fidelity.Result) func(io.Writer, style) {
	return func(w io.Writer, s style) {
		for _, p := range r.Places {
			fmt.Fprintf(w, "%s: %s\n", p.Placement, s.bold(p.Asked))
			if p.Path != "" {
				wrap(w, p.Path+", "+p.Packet)
			}
			fmt.Fprintf(w, "%d packets sent at %.0f a second, %d arrived%s\n", p.Sent, p.RatePacketsPerSecond, p.Received, overflowText(p.Overflow))
			if len(p.Checks) > 0 {
				t := table{head: []string{"CHECK", "ASKED", "MEASURED", "INTERVAL", "VERDICT", "NOTE"}, right: map[int]bool{1: true, 2: true}}
				for _, c := range p.Checks {
					t.add(checkName(c.Name), checkValue(c.Name, c.Asked), checkValue(c.Name, c.Measured), checkInterval(c), paintVerdict(s, c.Verdict), c.Note)
				}
				t.write(w, s)
			}
			for _, n := range p.Notes {
				wrap(w, "note: "+n)
			}
			if len(r.Places) > 1 {
				wrap(w, fmt.Sprintf("here: %s%s", paintVerdict(s, p.Verdict), because(p.Reason)))
			}
			fmt.Fprintln(w)
		}
		wrap(w, fmt.Sprintf("verdict: %s%s", paintVerdict(s, r.Verdict), because(r.Reason)))
	}
}

func overflowText(n *uint64) string {
	switch {
	case n == nil:
		return "; overflow of the queue cannot be told here"
	case *n == 0:
		return ", none lost to a full queue"
	}
	return fmt.Sprintf(", %d lost to a full queue", *n)
}

func paintVerdict(s style, v fidelity.Verdict) string {
	switch v {
	case fidelity.Pass:
		return s.good(string(v))
	case fidelity.Fail:
		return s.bad(string(v))
	}
	return s.warning(string(v))
}

// checkUnits are the ends of the checks' names, and how a number is written then.
var checkUnits = []struct{ suffix, unit string }{
	{"_percent", "%"}, {"_ms", " ms"}, {"_packets", " packets"}, {"_bit_per_second", " bit/s"},
}

// checkName is a check's name without its unit, in words: "loss", "delay p50".
func checkName(name string) string {
	for _, u := range checkUnits {
		if rest, ok := strings.CutSuffix(name, u.suffix); ok {
			name = rest
			break
		}
	}
	return strings.ReplaceAll(name, "_", " ")
}

// checkValue is a number with the unit of its check, a dash for none.
func checkValue(name string, v *float64) string {
	if v == nil {
		return "-"
	}
	unit := ""
	for _, u := range checkUnits {
		if strings.HasSuffix(name, u.suffix) {
			unit = u.unit
			break
		}
	}
	return number(*v) + unit
}

// number has four significant digits, and no exponent.
func number(v float64) string {
	if v >= 1000 || v <= -1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(short, 'f', -1, 64)
}

func checkInterval(c fidelity.Check) string {
	bounds := ""
	switch {
	case c.Low != nil && c.High != nil:
		bounds = number(*c.Low) + " to " + checkValue(c.Name, c.High)
	case c.Low != nil:
		bounds = "from " + checkValue(c.Name, c.Low)
	case c.High != nil:
		bounds = "to " + checkValue(c.Name, c.High)
	default:
		return "-"
	}
	return fmt.Sprintf("%s (%s%%)", bounds, number(c.ConfidencePercent))
}
