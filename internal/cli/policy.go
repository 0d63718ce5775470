package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"netemd/internal/policyfile"
	"netemd/probe/policy"
	"netemd/qdisc"
)

func (a *app) policy() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "policy", Short: "What a probe's client does against a bad network: retries, breaker and so on",
		Long: `What a probe's client does against a bad network, as a file for 'probe --policy FILE':
timeouts of calls and attempts, retries with backoff, a budget for them, hedging, a circuit
breaker, a bulkhead, a fallback, the deadline and the idempotency key that are passed on.`,
	})
	cmd.AddCommand(a.policyExample(), a.policyCheck(), a.policySchema())
	return cmd
}

func (a *app) policyExample() *cobra.Command {
	return &cobra.Command{
		Use: "example [NAME]", Short: "Print the file of a built-in policy, or list them", DisableFlagsInUseLine: true,
		Long: "Print the file of a built-in policy, to begin one of your own with; without NAME, list them.",
		Args: func(cmd *cobra.Command, args []string) error {
			return arguments(min(len(args), 1), "NAME")(cmd, args)
		},
		ValidArgsFunction: completePolicies(cobra.ShellCompDirectiveNoFileComp),
		RunE: a.do(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listPolicies()
			}
			text, ok := policyfile.Text(args[0])
			if !ok {
				return &qdisc.FieldError{Field: "NAME", Value: args[0], Want: "a built-in policy: " + strings.Join(policyfile.Names(), ", ")}
			}
			return a.emitText("policy_file", text)
		}),
	}
}

func (a *app) listPolicies() error {
	data := struct {
		Policies []policy.Policy `json:"policies"`
	}{policyfile.Builtins()}
	return a.emit(answer{kind: "policies", data: data, lines: anys(data.Policies), table: func(w io.Writer, s style) {
		t := table{head: []string{"POLICY", "WHAT IT DOES"}}
		for _, p := range data.Policies {
			t.add(s.bold(p.Name), p.Summary)
		}
		t.write(w, s)
	}})
}

func (a *app) policyCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE|NAME", Short: "Check a policy file, and show what it does with all defaults", DisableFlagsInUseLine: true,
		Long: `Check a policy file, and show what it does with all defaults, from the outermost layer to
the innermost. What is wrong is said all at once, with line and column; the exit code is 2 then.`,
		Args: arguments(1, "FILE"), ValidArgsFunction: completePolicies(cobra.ShellCompDirectiveDefault),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			_, _, p, err := readPolicy(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			p = p.WithDefaults()
			p.Order = p.Layers()
			return a.emit(answer{kind: "policy", data: p, table: func(w io.Writer, s style) {
				fmt.Fprintln(w, s.bold(p.Name)+strings.TrimSuffix(": "+p.Summary, ": "))
				pairs(w, s, policyRows(p))
			}})
		}),
	}
}

// readPolicy is the policy of a file or a built-in name, and its text and where that is from.
func readPolicy(ctx context.Context, name string) (path string, text []byte, p policy.Policy, err error) {
	if path, text, err = policyfile.Load(ctx, name); err != nil {
		return "", nil, p, usageError{err}
	}
	p, err = policyfile.Parse(path, text)
	return path, text, p, err
}

func (a *app) policySchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of policy files", Args: arguments(0, ""), DisableFlagsInUseLine: true,
		Long: "Print the JSON schema of policy files, by which editors complete and check them.", ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.do(func(_ *cobra.Command, _ []string) error {
			text, err := policyfile.Schema()
			if err != nil {
				return err
			}
			return a.emitText("policy_schema", text)
		}),
	}
}

// completePolicies completes the name of a built-in policy, and what otherwise says.
func completePolicies(otherwise cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return beginning(policyfile.Names(), typed), otherwise
	}
}
