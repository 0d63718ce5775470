package cli

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"netemd/qdisc"
)

// asked is what a command line says of an impairment.
type asked struct {
	patch qdisc.Patch
	// tc is the impairment in netem's own syntax, instead of all the flags.
	tc string
	// instead are the flags that may not stand beside tc.
	instead *pflag.FlagSet
	// samples is the file of a custom distribution.
	samples string
	// slot's fields are those that are named.
	slot slotFlags
	// expectRate and queue size the limit; preserveOrder keeps packets from overtaking.
	expectRate    *qdisc.Rate
	queue         *time.Duration
	preserveOrder bool
}

// slotFlags are the named parts of a slot.
type slotFlags struct {
	times, shape *qdisc.Slot
	packets      *uint32
	bytes        *qdisc.Bytes
}

// impairment binds flags to what is asked for. What it binds, but for --tc, is in its
// flags, which go on with the command's own in the end.
type impairment struct {
	asked *asked
	flags *pflag.FlagSet
	cmd   *cobra.Command
}

func bind(cmd *cobra.Command, to *asked) impairment {
	return impairment{asked: to, flags: pflag.NewFlagSet("impairment", pflag.ContinueOnError), cmd: cmd}
}

// done adds the flags to the command's, and with tc --tc beside them.
func (i impairment) done(tc bool) {
	i.cmd.Flags().AddFlagSet(i.flags)
	if i.flags.Lookup("distribution") != nil {
		completeWords(i.cmd, "distribution", []string{"uniform", "normal", "pareto", "paretonormal"})
	}
	if tc {
		i.cmd.Flags().Var(once(&i.asked.tc, "WORDS", wantTC), "tc", "the impairment in tc's own `WORDS`, such as \"delay 100ms 20ms loss 5%\", instead of all its flags")
		i.asked.instead = i.flags
	}
}

func (i impairment) percent(dst **qdisc.Percent, name, usage string) {
	i.flags.Var(optional(dst, "PERCENT", qdisc.ParsePercent), name, usage)
}

func (i impairment) delay() {
	i.flags.Var(optional(&i.asked.patch.Delay, "TIME", qdisc.ParseDuration), "delay", "hold every packet for this long, one way")
}

func (i impairment) delayRest() {
	p := &i.asked.patch
	i.flags.Var(optional(&p.Jitter, "TIME", qdisc.ParseDuration), "jitter",
		"vary the delay by up to this much either way; lets packets overtake each other")
	i.percent(&p.DelayCorrelation, "delay-correlation", "how much a delay depends on the one before")
	i.flags.Var(optional(&p.Distribution, "SHAPE", parseShape), "distribution",
		"shape of the jitter: uniform (default), normal, pareto or paretonormal")
	i.flags.Var(once(&i.asked.samples, "FILE", "the path of a table, "+wantTable), "distribution-file", "shape of the jitter as a table, in the `FILE` format of tc (.dist)")
	i.flags.BoolVar(&i.asked.preserveOrder, "preserve-order", false, "keep packets from overtaking each other, by a rate far above any device's")
	i.flags.Var(optional(&i.asked.expectRate, "RATE", qdisc.ParseRate), "expect-rate",
		"size the queue for this much traffic through the delay, such as 1gbit")
}

func (i impairment) loss() { i.percent(&i.asked.patch.Loss, "loss", "share of packets to drop") }
func (i impairment) lossRest() {
	i.percent(&i.asked.patch.LossCorrelation, "loss-correlation", "how much a loss depends on the one before; lowers the loss itself")
	i.flags.Var(yes(&i.asked.patch.ECN), "ecn", "mark packets that carry ECN as congested instead of dropping them")
	i.flags.Lookup("ecn").NoOptDefVal = "true"
}

// lossModels are the alternatives to a loss.
func (i impairment) lossModels() {
	i.flags.Var(optional(&i.asked.patch.LossState, "P13,P31,P32,P23,P14", qdisc.ParseLossState), "loss-state",
		"drop by a 4-state Markov model, with these chances to go from state to state")
	i.flags.Var(optional(&i.asked.patch.GilbertElliott, "P,R[,1-H[,1-K]]", qdisc.ParseGilbertElliott), "loss-gemodel",
		"drop in bursts, by Gilbert and Elliott: chance to go bad, to go good, loss when bad (default 100%), when good (0%)")
}

func (i impairment) duplicate() {
	i.percent(&i.asked.patch.Duplicate, "duplicate", "share of packets to send twice")
}
func (i impairment) duplicateRest() {
	i.percent(&i.asked.patch.DuplicateCorrelation, "duplicate-correlation", "how much a duplicate depends on the one before")
}

func (i impairment) reorder() {
	i.percent(&i.asked.patch.Reorder, "reorder", "share of packets to send at once, ahead of the delayed ones")
}
func (i impairment) reorderRest() {
	i.percent(&i.asked.patch.ReorderCorrelation, "reorder-correlation", "how much a reordering depends on the one before")
	i.flags.Var(optional(&i.asked.patch.Gap, "N", unsigned[uint32](32, 0)), "gap", "reorder only every N-th packet")
}

func (i impairment) corrupt() {
	i.percent(&i.asked.patch.Corrupt, "corrupt", "share of packets in which to flip one bit")
}
func (i impairment) corruptRest() {
	i.percent(&i.asked.patch.CorruptCorrelation, "corrupt-correlation", "how much a corruption depends on the one before")
}

func (i impairment) rate() {
	i.flags.Var(optional(&i.asked.patch.Rate, "RATE", parseRateOrNone), "rate", "let packets leave at this rate, such as 10mbit or 1MBps")
}

func (i impairment) rateRest() {
	p := &i.asked.patch
	i.flags.Var(optional(&i.asked.queue, "TIME", positive), "queue", "longest wait in the queue of the rate; what comes on top is dropped (default 1s)")
	i.flags.Var(optional(&p.PacketOverhead, "BYTES", signed), "packet-overhead", "count each packet as this many bytes more; less if negative")
	i.flags.Var(optional(&p.CellSize, "BYTES", unsigned[uint32](32, 0)), "cell-size", "count packets in cells of this many bytes, such as 48 for ATM")
	i.flags.Var(optional(&p.CellOverhead, "BYTES", signed), "cell-overhead", "count each cell as this many bytes more")
}

func (i impairment) slot() {
	s := &i.asked.slot
	i.flags.Var(optional(&s.times, "MIN[,MAX]", qdisc.ParseSlot), "slot", "let packets leave in bunches, at times that far apart; 0ms for none")
	i.flags.Var(optional(&s.shape, "SHAPE,DELAY,JITTER", parseSlotShape), "slot-distribution",
		"draw the times between bunches from a shape: normal, pareto or paretonormal")
	i.flags.Var(optional(&s.packets, "N", unsigned[uint32](32, 0)), "slot-packets", "most packets in a bunch")
	i.flags.Var(optional(&s.bytes, "BYTES", qdisc.ParseBytes), "slot-bytes", "most bytes in a bunch, such as 64kB")
}

// common are the fields that go with every impairment.
func (i impairment) common() {
	i.flags.Var(optional(&i.asked.patch.Limit, "N", unsigned[uint32](32, 1)), "limit",
		"size of the queue in packets (default 100000; with a rate, for 1s of it)")
	i.flags.Var(optional(&i.asked.patch.Seed, "N", unsigned[uint64](64, 1)), "seed", "make the random draws repeatable, where the engine can")
}

// all are all impairments, for commands that set several at once.
func (i impairment) all() {
	i.loss()
	i.lossRest()
	i.lossModels()
	i.delay()
	i.delayRest()
	i.reorder()
	i.reorderRest()
	i.duplicate()
	i.duplicateRest()
	i.corrupt()
	i.corruptRest()
	i.rate()
	i.rateRest()
	i.slot()
}
