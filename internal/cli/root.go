package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// The groups of the help.
const (
	groupFaults  = "faults"
	groupMeasure = "measure"
	groupPlaces  = "places"
	groupOther   = "other"
)

func (a *app) root() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "netemctl",
		Short: "Impair the network, and measure what that does to a client",
		Long: `netemctl impairs the packets and connections of a target, and measures what
that does to a real client. It talks to netemd, the agent, which does the work.

  netemctl lab up pg                        a client, a wire and a real PostgreSQL
  netemctl compare --target pg --loss 20%   why packet loss is not latency
  netemctl loss 20% --target pg             every fault ends by itself: --ttl 10m
  netemctl clear --all

` + exitCodesText,
		SilenceErrors: true,
		SilenceUsage:  true,
	})
	root.SetFlagErrorFunc(a.flagError)
	a.outputFlag(root)
	root.PersistentFlags().StringVar(&a.socket, "socket", "",
		"unix socket `PATH` of the agent (default $NETEMD_SOCKET, or /run/netemd/netemd.sock)")
	root.AddGroup(
		&cobra.Group{ID: groupFaults, Title: "Faults:"},
		&cobra.Group{ID: groupMeasure, Title: "Measurements:"},
		&cobra.Group{ID: groupPlaces, Title: "Labs and targets:"},
		&cobra.Group{ID: groupOther, Title: "This machine and program:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	cobra.EnableCommandSorting = false
	add(groupFaults, a.loss(), a.delay(), a.reorder(), a.duplicate(), a.corrupt(), a.partition(), a.apply(), a.toxic(),
		a.change(), a.list(), a.show(), a.renew(), a.clear(), a.watch())
	add(groupMeasure, a.probe(), a.compare())
	add(groupPlaces, a.lab(), a.target())
	add(groupOther, a.doctor(), a.version())
	root.SetCompletionCommandGroupID(groupOther)
	root.SetHelpCommandGroupID(groupOther)
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesText})
	return root
}

// form is how a command's arguments are written, from its Use line.
func form(cmd *cobra.Command) string {
	_, rest, _ := strings.Cut(cmd.Use, " ")
	return rest
}
