package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"netemd/internal/lab"
)

// differenceView is a difference as JSON.
type differenceView struct {
	Path string `json:"path"`
	Want string `json:"want"`
	Have string `json:"have"`
}

func (a *app) labDiff() *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use: "diff NAME|FILE|- [--as NAME]", Short: "Say what of a lab is not as it should be", Args: arguments(1, labForm), ValidArgsFunction: a.completeLabsUp,
		DisableFlagsInUseLine: true,
		Long: `Compare a lab that is up with a file, or by its name with what it was made of, and both with the kernel: nodes, devices,
addresses, routes and sysctls, services that ended, base impairments; also devices, addresses and routes that somebody
added. "-" is what is there, "+" what should be. As of diff(1), exit code 0 says that all is
equal and 1 that something differs; 2 and more are errors, as everywhere, and so is 1 with an error's text.`,
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			r, err := a.labRequest(cmd.Context(), args[0], as)
			if err != nil {
				return err
			}
			ds, err := agent.LabDiff(cmd.Context(), r)
			if err != nil {
				return err
			}
			data := struct {
				Differences []differenceView `json:"differences"`
			}{[]differenceView{}}
			for _, d := range ds {
				data.Differences = append(data.Differences, differenceView(d))
			}
			err = a.emit(answer{kind: "lab_diff", data: data, lines: anys(data.Differences), table: func(w io.Writer, s style) {
				for _, d := range ds {
					writeDifference(w, s, d)
				}
			}})
			if err == nil && len(ds) > 0 {
				return commandExit{exitError}
			}
			return err
		}),
	}
	cmd.Flags().Var(once(&as, "NAME", wantLab), "as", "the `NAME` under which the file's lab is up")
	return cmd
}

// writeDifference is in diff's own signs: what is there, and what should be.
func writeDifference(w io.Writer, s style, d lab.Difference) {
	fmt.Fprintln(w, s.bold(d.Path))
	if d.Have != "" {
		fmt.Fprintln(w, s.bad("  - "+d.Have))
	}
	if d.Want != "" {
		fmt.Fprintln(w, s.good("  + "+d.Want))
	}
}
