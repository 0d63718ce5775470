package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"netemd/qdisc"
)

func (a *app) labServer() *cobra.Command {
	var set string
	var reset bool
	cmd := &cobra.Command{
		Use: "server LAB/SERVICE [flags]", Short: "What a lab's server counted, and what it does", Args: arguments(1, "tiers/front"),
		DisableFlagsInUseLine: true, ValidArgsFunction: a.completeServices,
		Long: `Show the counters and settings of a service of kind http-echo or http-tier, and set them.
Settings are replaced whole, and stand until the service or its lab ends; an empty file is
what the lab's definition says. docs/servers.md has them.`,
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			of, name, ok := strings.Cut(args[0], "/")
			if !ok || of == "" || name == "" {
				return &qdisc.FieldError{Field: "service", Value: args[0], Want: "LAB/SERVICE, such as tiers/front"}
			}
			var text []byte
			if set != "" {
				var err error
				if text, err = a.settingsText(cmd.Context(), set); err != nil {
					return err
				}
			}
			s, err := agent.LabServer(cmd.Context(), of, name, text, reset)
			if err != nil {
				return err
			}
			return a.emit(answer{kind: "server", data: s, table: func(w io.Writer, st style) {
				t := table{head: []string{"COUNTER", "VALUE"}, right: map[int]bool{1: true}}
				for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
					t.add(name, strconv.FormatInt(s.Counters[name], 10))
				}
				t.write(w, st)
				if s.Settings != "" {
					fmt.Fprintf(w, "\n%s", s.Settings)
				}
			}})
		}),
	}
	cmd.Flags().StringVar(&set, "set", "", "replace the settings by those of this `FILE`, - for standard input")
	cmd.Flags().BoolVar(&reset, "reset", false, "set the counters to 0")
	return cmd
}

// settingsText reads settings; they are not nil.
func (a *app) settingsText(ctx context.Context, path string) ([]byte, error) {
	text, err := a.fileText(ctx, "settings", path)
	return append([]byte{}, text...), err
}
