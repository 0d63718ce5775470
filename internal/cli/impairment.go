package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"netemd/qdisc"
)

// impairment binds flags to the fields of a Patch.
type impairment struct {
	patch *qdisc.Patch
	flags *pflag.FlagSet
	cmd   *cobra.Command
}

func bind(cmd *cobra.Command, patch *qdisc.Patch) impairment {
	return impairment{patch: patch, flags: cmd.Flags(), cmd: cmd}
}

func (i impairment) percent(dst **qdisc.Percent, name, usage string) {
	i.flags.Var(optional(dst, "PERCENT", qdisc.ParsePercent), name, usage)
}

func (i impairment) delay() {
	i.flags.Var(optional(&i.patch.Delay, "TIME", qdisc.ParseDuration), "delay", "hold every packet for this long, one way")
}

func (i impairment) delayRest() {
	i.flags.Var(optional(&i.patch.Jitter, "TIME", qdisc.ParseDuration), "jitter",
		"vary the delay by up to this much either way; lets packets overtake each other")
	i.percent(&i.patch.DelayCorrelation, "delay-correlation", "how much a delay depends on the one before")
	i.flags.Var(optional(&i.patch.Distribution, "SHAPE", qdisc.ParseDistribution), "distribution",
		"shape of the jitter: uniform (default), normal, pareto or paretonormal")
	completeWords(i.cmd, "distribution", []string{"uniform", "normal", "pareto", "paretonormal"})
}

func (i impairment) loss() { i.percent(&i.patch.Loss, "loss", "share of packets to drop") }
func (i impairment) lossRest() {
	i.percent(&i.patch.LossCorrelation, "loss-correlation", "how much a loss depends on the one before; lowers the loss itself")
}

func (i impairment) duplicate() {
	i.percent(&i.patch.Duplicate, "duplicate", "share of packets to send twice")
}
func (i impairment) duplicateRest() {
	i.percent(&i.patch.DuplicateCorrelation, "duplicate-correlation", "how much a duplicate depends on the one before")
}

func (i impairment) reorder() {
	i.percent(&i.patch.Reorder, "reorder", "share of packets to send at once, ahead of the delayed ones")
}
func (i impairment) reorderRest() {
	i.percent(&i.patch.ReorderCorrelation, "reorder-correlation", "how much a reordering depends on the one before")
	i.flags.Var(optional(&i.patch.Gap, "N", unsigned[uint32](32, 0)), "gap", "reorder only every N-th packet")
}

func (i impairment) corrupt() {
	i.percent(&i.patch.Corrupt, "corrupt", "share of packets in which to flip one bit")
}
func (i impairment) corruptRest() {
	i.percent(&i.patch.CorruptCorrelation, "corrupt-correlation", "how much a corruption depends on the one before")
}

// common are the fields that go with every impairment.
func (i impairment) common() {
	i.flags.Var(optional(&i.patch.Limit, "N", unsigned[uint32](32, 1)), "limit", "size of the queue in packets (default 100000)")
	i.flags.Var(optional(&i.patch.Seed, "N", unsigned[uint64](64, 1)), "seed", "make the random draws repeatable, where the engine can")
}

// all are all impairments, for commands that set several at once.
func (i impairment) all() {
	i.loss()
	i.lossRest()
	i.delay()
	i.delayRest()
	i.reorder()
	i.reorderRest()
	i.duplicate()
	i.duplicateRest()
	i.corrupt()
	i.corruptRest()
}
