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

` + exitCodesText,
		SilenceErrors: true,
		SilenceUsage:  true,
	})
	root.SetIn(a.env.Stdin)
	root.SetOut(a.out)
	root.SetErr(a.env.Stderr)
	root.SetFlagErrorFunc(a.flagError)
	a.outputFlag(root)
	a.endpointFlags(root)
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
	add(groupFaults, a.loss(), a.delay(), a.reorder(), a.duplicate(), a.corrupt(), a.rate(), a.partition(), a.apply(), a.drop(), a.hold(), a.toxic(), a.app(), a.process(),
		a.change(), a.list(), a.show(), a.renew(), a.clear(), a.watch(), a.stats(), a.packets())
	add(groupMeasure, a.verify(), a.probe(), a.compare(), a.experiment(), a.report(), a.catalogue(), a.policy())
	add(groupPlaces, a.lab(), a.target(), a.profile())
	add(groupOther, a.doctor(), a.version())
	root.SetCompletionCommandGroupID(groupOther)
	root.SetHelpCommand(a.help())
	root.SetHelpCommandGroupID(groupOther)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesText})
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			group(c)
		}
	}
	showExamples(root)
	return root
}

// help is cobra's, but for a command that does not exist, which is an error.
func (a *app) help() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command", Long: "Help about any command.",
		Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return beginning(known(about), typed), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && about.HasSubCommands() {
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// form is how a command's arguments are written, from its Use line.
func form(cmd *cobra.Command) string {
	_, rest, _ := strings.Cut(cmd.Use, " ")
	return rest
}
