package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// toxicView is a toxic as JSON; only its own kind's fields are there.
type toxicView struct {
	Kind   fault.ToxicKind       `json:"kind"`
	Stream fault.StreamDirection `json:"stream"`
	// Direction is the stream in the words of packet faults; empty of down, which has none.
	Direction     fault.Direction `json:"direction,omitempty"`
	Toxicity      float64         `json:"toxicity_percent"`
	Seed          uint64          `json:"seed,omitempty"`
	LatencyNS     *int64          `json:"latency_ns,omitempty"`
	JitterNS      *int64          `json:"jitter_ns,omitempty"`
	TimeoutNS     *int64          `json:"timeout_ns,omitempty"`
	Bytes         *uint64         `json:"bytes,omitempty"`
	Rate          *uint64         `json:"rate_bytes_per_second,omitempty"`
	AverageSize   *uint64         `json:"average_size_bytes,omitempty"`
	SizeVariation *uint64         `json:"size_variation_bytes,omitempty"`
	DelayNS       *int64          `json:"delay_ns,omitempty"`
}

func viewToxic(t fault.Toxic) toxicView {
	v := toxicView{Kind: t.Kind, Stream: t.Stream, Toxicity: float64(t.Toxicity), Seed: t.Seed}
	if v.Stream == "" {
		v.Stream = fault.Downstream
	}
	if v.Toxicity == 0 {
		v.Toxicity = 100
	}
	if t.Kind != fault.Down {
		v.Direction = v.Stream.Direction()
	}
	switch t.Kind {
	case fault.Latency:
		v.LatencyNS, v.JitterNS = new(int64(t.Latency)), new(int64(t.Jitter))
	case fault.Timeout, fault.ResetPeer:
		v.TimeoutNS = new(int64(t.Timeout))
	case fault.LimitData:
		v.Bytes = new(uint64(t.Bytes))
	case fault.Bandwidth:
		v.Rate = new(uint64(t.Rate))
	case fault.Slicer:
		v.AverageSize, v.SizeVariation = new(uint64(t.AverageSize)), new(uint64(t.SizeVariation))
		v.DelayNS = new(int64(t.Delay))
	case fault.SlowClose:
		v.DelayNS = new(int64(t.Delay))
	}
	return v
}

// toxicWords says a toxic in one phrase.
func toxicWords(t fault.Toxic) string {
	s := string(t.Kind)
	d := qdisc.FormatDuration
	switch t.Kind {
	case fault.Latency:
		s += " " + d(t.Latency)
		if t.Jitter > 0 {
			s += " jitter " + d(t.Jitter)
		}
	case fault.Timeout, fault.ResetPeer:
		s += " after " + d(t.Timeout)
		if t.Kind == fault.Timeout && t.Timeout == 0 {
			s = "timeout never (holds for ever)"
		}
	case fault.SlowClose:
		s += " after " + d(t.Delay)
	case fault.LimitData:
		s += fmt.Sprintf(" %d B", t.Bytes)
	case fault.Bandwidth:
		s += fmt.Sprintf(" %d B/s", t.Rate)
	case fault.Slicer:
		s += fmt.Sprintf(" %d B +-%d B every %s", t.AverageSize, t.SizeVariation, d(t.Delay))
	}
	if t.Toxicity > 0 && t.Toxicity < 100 {
		s += fmt.Sprintf(", %v of connections", t.Toxicity)
		if t.Seed != 0 {
			s += fmt.Sprintf(" by seed %d", t.Seed)
		}
	}
	if t.Kind != fault.Down {
		stream := t.Stream
		if stream == "" {
			stream = fault.Downstream
		}
		s += fmt.Sprintf(" %s (%s)", stream, stream.Direction())
	}
	return s
}

func (a *app) toxic() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "toxic KIND", Short: "Impair connections through the target's proxy",
		Long: `Impair connections through the target's proxy: the stream layer. It works on every
kernel, on connections that go through the proxy, and never loses a packet.

The proxy is the target's own, or with --toxiproxy one of a Toxiproxy that runs already: --proxy
names one that is there, whose connections and other toxics stay as they are; --listen and
--upstream make one, which is deleted at the fault's end. To the target is upstream in
Toxiproxy's words, from it downstream.`,
	})
	cmd.AddCommand(a.toxicApply(),
		a.toxicCommand(fault.Latency, "Make answers late", func(cmd *cobra.Command, t *fault.Toxic) []string {
			duration(cmd, &t.Latency, "latency", "hold data for this long; required")
			duration(cmd, &t.Jitter, "jitter", "vary the latency by up to this much either way")
			return []string{"latency"}
		}),
		a.toxicCommand(fault.Timeout, "Pass no data, then close", func(cmd *cobra.Command, t *fault.Toxic) []string {
			duration(cmd, &t.Timeout, "timeout", "close the connection after this time; 0s holds it for ever (default 0s)")
			return nil
		}),
		a.toxicCommand(fault.ResetPeer, "Reset connections", func(cmd *cobra.Command, t *fault.Toxic) []string {
			duration(cmd, &t.Timeout, "timeout", "reset after this time; 0s at once (default 0s)")
			return nil
		}),
		a.toxicCommand(fault.LimitData, "Close after an amount of data", func(cmd *cobra.Command, t *fault.Toxic) []string {
			cmd.Flags().Var(typed(&t.Bytes, "BYTES", qdisc.ParseBytes, nil), "bytes", "close after this much, such as 200B; required")
			return []string{"bytes"}
		}),
		a.toxicCommand(fault.Bandwidth, "Limit the rate", func(cmd *cobra.Command, t *fault.Toxic) []string {
			cmd.Flags().Var(typed(&t.Rate, "RATE", qdisc.ParseRate, nil), "rate", "such as 100KBps or 1mbit; required")
			return []string{"rate"}
		}),
		a.toxicCommand(fault.Slicer, "Cut data into small pieces", func(cmd *cobra.Command, t *fault.Toxic) []string {
			cmd.Flags().Var(typed(&t.AverageSize, "BYTES", qdisc.ParseBytes, nil), "average-size", "size of a piece, such as 64B; required")
			cmd.Flags().Var(typed(&t.SizeVariation, "BYTES", qdisc.ParseBytes, nil), "size-variation", "vary the size by up to this much")
			duration(cmd, &t.Delay, "delay", "wait between two pieces")
			return []string{"average-size"}
		}),
		a.toxicCommand(fault.SlowClose, "Pass the end of a connection on late", func(cmd *cobra.Command, t *fault.Toxic) []string {
			duration(cmd, &t.Delay, "delay", "close this long after the other end has; required")
			return []string{"delay"}
		}),
		a.toxicCommand(fault.Down, "Refuse connections", func(*cobra.Command, *fault.Toxic) []string { return nil }),
	)
	return cmd
}

func duration(cmd *cobra.Command, dst *time.Duration, name, usage string) {
	cmd.Flags().Var(typed(dst, "TIME", qdisc.ParseDuration, nil), name, usage)
}

// toxicCommand makes the command of one kind; flags returns those required.
func (a *app) toxicCommand(
	kind fault.ToxicKind, short string, flags func(*cobra.Command, *fault.Toxic) []string,
) *cobra.Command {
	t := fault.Toxic{Kind: kind, Stream: fault.Downstream}
	var spot toxicSpot
	var direction fault.Direction
	var l lasting
	cmd := &cobra.Command{
		Use: string(kind) + dashUse, Short: short, Long: short + ".",
		DisableFlagsInUseLine: true, ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return a.argumentsAndCommand(0, form(cmd))(cmd, args) }
	required := flags(cmd, &t)
	if kind != fault.Down {
		one(cmd, &t.Stream, "stream", "upstream is client to server, downstream server to client", fault.Upstream, fault.Downstream)
		one(cmd, &direction, "direction", "the same in the words of packet faults: to is upstream, from downstream", fault.To, fault.From, fault.Both)
		cmd.Flags().Var(typed(&t.Toxicity, "PERCENT", qdisc.ParsePercent, nil), "toxicity",
			"share of connections that it touches, drawn once for each (default 100%)")
		cmd.Flags().Var(typed(&t.Seed, "N", unsigned[uint64](64, 1), func(uint64) string { return "" }), "seed",
			"with --toxicity: touch the same connections each time, by their order; not with --toxiproxy")
	}
	a.toxicSpotFlags(cmd, &spot, &l)
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		name, err := spot.name(cmd)
		if err != nil {
			return err
		}
		for _, name := range required {
			if !cmd.Flags().Changed(name) {
				return usageError{fmt.Errorf("%s: --%s is required", below(cmd), name)}
			}
		}
		if cmd.Flags().Changed("toxicity") && t.Toxicity == 0 {
			return &qdisc.FieldError{Field: "--toxicity", Value: "0%", Want: "a share above 0%; 'clear' takes a toxic away"}
		}
		toxics, err := inDirection(cmd, t, direction)
		if err != nil {
			return err
		}
		if err := spot.seed(toxics); err != nil {
			return err
		}
		spec := fault.Spec{Target: name, Toxics: toxics}
		l.fillSpec(&spec)
		if err := spec.Validate(); err != nil {
			return err
		}
		return a.runFault(cmd, spec, handling{}, dashed(cmd, args))
	})
	return cmd
}

// inDirection is t on the sides that --direction says, or on that of --stream.
func inDirection(cmd *cobra.Command, t fault.Toxic, d fault.Direction) ([]fault.Toxic, error) {
	if d == "" {
		return []fault.Toxic{t}, nil
	}
	if cmd.Flags().Changed("stream") {
		return nil, usageError{fmt.Errorf("%s: want one of --stream and --direction, not both", below(cmd))}
	}
	up, down := t, t
	up.Stream, down.Stream = fault.Upstream, fault.Downstream
	switch d {
	case fault.To:
		return []fault.Toxic{up}, nil
	case fault.From:
		return []fault.Toxic{down}, nil
	}
	return []fault.Toxic{up, down}, nil
}
