package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/lab/labfile"
	"netemd/internal/target"
)

// completionTime bounds what the shell waits for when it completes a name.
const completionTime = time.Second

// completeWords completes a flag with fixed words.
func completeWords(cmd *cobra.Command, flag string, words []string) {
	// It fails only for a flag that does not exist, which the tests would find.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return beginning(words, typed), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeTargets completes --target with the agent's targets, or, without an
// agent, with those of the built-in labs.
func (a *app) completeTargets(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("target",
		func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return beginning(a.targetNames(cmd.Context()), typed), cobra.ShellCompDirectiveNoFileComp
		})
}

func (a *app) targetNames(ctx context.Context) []string {
	var names []string
	if agent, err := a.dial(); err == nil {
		defer agent.Close()
		ctx, cancel := context.WithTimeout(ctx, completionTime)
		defer cancel()
		ts, err := agent.Targets(ctx)
		if err == nil {
			for _, t := range ts {
				names = append(names, t.Name)
			}
			return names
		}
	}
	for _, d := range labfile.Builtins() {
		for _, t := range d.Targets {
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	return names
}

// completeDevices completes --dev with the devices of the machine, or of the namespace
// that stands before it on the command line, and --netns.
func (a *app) completeDevices(cmd *cobra.Command, namespace *string) {
	_ = cmd.RegisterFlagCompletionFunc("dev", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		names, _ := a.env.Devices(*namespace)
		names = slices.DeleteFunc(names, target.Ours)
		return beginning(names, typed), cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("netns", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		names, _ := a.env.Namespaces()
		return beginning(names, typed), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeFaults completes a fault's id.
func (a *app) completeFaults(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	agent, err := a.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer agent.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	fs, err := agent.List(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, f := range fs {
		ids = append(ids, f.ID+"\t"+words(f.Spec))
	}
	return beginning(ids, typed), cobra.ShellCompDirectiveNoFileComp
}

func beginning(words []string, typed string) []string {
	var out []string
	for _, w := range words {
		if strings.HasPrefix(w, typed) {
			out = append(out, w)
		}
	}
	return out
}
