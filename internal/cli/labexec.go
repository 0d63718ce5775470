package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/lab"
)

const execForm = "NODE -- CMD"

func (a *app) labExec() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "exec [--lab NAME] NODE -- CMD...", Short: "Run a command in a node", DisableFlagsInUseLine: true,
		Long: `Run a command in a node's network namespace, with this terminal, and with its exit
code. netemctl enters the namespace itself, so it needs root but no agent.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := a.argumentsAndCommand(1, execForm)(cmd, args); err != nil {
				return err
			}
			if len(dashed(cmd, args)) == 0 {
				return wantCommand(cmd, execForm)
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return beginning(a.nodesOf(cmd.Context(), name), typed), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			// A lab's namespaces have a name that ip netns shows, see lab.Definition.
			ns := lab.Definition{Name: name}.Namespace(args[0])
			code, err := a.env.Command(cmd.Context(), Command{
				Namespace: ns, Argv: dashed(cmd, args), Stdin: a.env.Stdin, Stdout: a.env.Stdout, Stderr: a.env.Stderr,
			})
			switch {
			case errors.Is(err, fs.ErrPermission):
				return fault.WithHint(fmt.Errorf("lab exec: %w", err), "entering a namespace needs root: sudo netemctl lab exec ...")
			case errors.Is(err, errNoNamespace):
				return fault.WithHint(fmt.Errorf("lab exec: %w", err), "see 'netemctl lab show "+name+"', or make it: netemctl lab up "+name)
			case err != nil:
				return fmt.Errorf("lab exec: %w", err)
			case code != 0:
				return commandExit{code}
			}
			return nil
		}),
	}
	name = "pg"
	cmd.Flags().Var(once(&name, "NAME", wantLab), "lab", "`NAME` of the lab (default \"pg\")")
	_ = cmd.RegisterFlagCompletionFunc("lab", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return beginning(a.labsUp(cmd.Context()), typed), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// nodesOf are the nodes of a lab that is up, without its wires.
func (a *app) nodesOf(ctx context.Context, name string) []string {
	agent, err := a.dial()
	if err != nil {
		return nil
	}
	defer agent.Close()
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	info, text, err := agent.Lab(ctx, name)
	if err != nil {
		return nil
	}
	plan, _ := planOf(text)
	roles := map[string]lab.Role{}
	for _, n := range plan.Namespaces {
		roles[n.Name] = n.Role
	}
	var nodes []string
	for _, n := range info.Nodes {
		if r := roles[n.Name]; r == lab.RoleNode || r == "" {
			nodes = append(nodes, n.Name)
		}
	}
	return nodes
}
