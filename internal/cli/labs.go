package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/qdisc"
)

func (a *app) lab() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "lab", Short: "Topologies of namespaces, links and services",
		Long: `Labs are hosts in network namespaces, links and switches between them, and services that
run there, as a file says it; ` + strings.Join(labfile.Names(), ", ") + ` are built in.`,
	})
	cmd.AddCommand(a.labUp(), a.labDown(), a.labList(), a.labShow(), a.labExec(), a.labDiff(), a.labServer(), a.labExample(), a.labSchema())
	return cmd
}

// labForm is what stands where a lab is asked for.
const labForm = "NAME|FILE|-"

// isLabFile tells a file from the name of a built-in lab, which has no such signs.
func isLabFile(arg string) bool {
	return arg == "-" || strings.ContainsRune(arg, filepath.Separator) || strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")
}

// labRequest is the lab that an argument asks for: a built-in one, of which the agent
// decides whether it has it, or a file, which is read and checked here first.
func (a *app) labRequest(ctx context.Context, arg, as string) (labfile.Request, error) {
	if !isLabFile(arg) {
		return labfile.Request{Name: arg, As: as}, nil
	}
	if arg != "-" {
		r, _, err := labfile.Load(ctx, arg)
		if err != nil && !errors.Is(err, qdisc.ErrInvalid) {
			err = usageError{err}
		}
		r.As = as
		return r, err
	}
	folder, err := os.Getwd()
	if err != nil {
		return labfile.Request{}, fmt.Errorf("lab file: %w", err)
	}
	text, err := a.fileText(ctx, "lab file", arg)
	if err != nil {
		return labfile.Request{}, err
	}
	r, _, err := labfile.Read(text, labfile.Source{Path: "stdin", Folder: folder})
	r.As = as
	return r, err
}

func (a *app) labUp() *cobra.Command {
	var as string
	var dry bool
	cmd := &cobra.Command{
		Use: "up NAME|FILE|- [--as NAME]", Short: "Make a lab", Args: arguments(1, labForm), ValidArgsFunction: completeLabs,
		DisableFlagsInUseLine: true,
		Long: `Make a lab: a built-in one by its name, or the one of a file, - for standard input. A file has a /
or ends in .yaml or .yml. Making one that is up changes nothing. What fails is undone as a whole. The commands of
its services run as who asks for the lab.`,
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			r, err := a.labRequest(cmd.Context(), args[0], as)
			if err != nil {
				return err
			}
			if dry {
				def, err := r.Definition()
				if err != nil {
					return err
				}
				return a.labPlan(def)
			}
			return a.withAgent(func(cmd *cobra.Command, agent Agent, _ []string) error {
				p := a.stepProgress()
				info, err := agent.LabUp(cmd.Context(), r, p.step)
				p.done()
				if err != nil {
					return err
				}
				view, text, err := a.seeLab(cmd.Context(), agent, info.Name)
				if err != nil {
					return err
				}
				return a.emit(answer{kind: "lab", data: view, table: text})
			})(cmd, args)
		}),
	}
	cmd.Flags().Var(once(&as, "NAME", wantLab), "as", "call the lab `NAME`, so that it stands beside others of the same file")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be made; needs neither an agent nor root")
	return cmd
}

func (a *app) labDown() *cobra.Command {
	return &cobra.Command{
		Use: "down NAME", Short: "Take a lab away, with its faults", Args: arguments(1, "pg"), ValidArgsFunction: a.completeLabsUp,
		Long: "Take a lab away, with its services and faults. Without one there is nothing to do.",
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			existed, err := agent.LabDown(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			also := ""
			if !existed {
				also = a.othersUp(cmd.Context(), agent)
			}
			data := struct {
				Name    string `json:"name"`
				Existed bool   `json:"existed"`
			}{args[0], existed}
			return a.emit(answer{kind: "lab_down", data: data, table: func(w io.Writer, _ style) {
				if existed {
					fmt.Fprintf(w, "lab %s is down\n", args[0])
					return
				}
				a.say("lab %s was not up%s", args[0], also)
			}})
		}),
	}
}

// othersUp says which labs are up, for whoever mistyped a name.
func (a *app) othersUp(ctx context.Context, agent Agent) string {
	ls, err := agent.Labs(ctx)
	if err != nil || len(ls) == 0 {
		return ""
	}
	names := make([]string, len(ls))
	for i, l := range ls {
		names[i] = l.Name
	}
	return "; up: " + qdisc.Few(names)
}

// cellNames is how many names a cell of a table has.
const cellNames = 8

func (a *app) labList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the labs that are up", Args: arguments(0, ""),
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, _ []string) error {
			ls, err := agent.Labs(cmd.Context())
			if err != nil {
				return err
			}
			data := struct {
				Labs []labView `json:"labs"`
			}{Labs: []labView{}}
			for _, l := range ls {
				data.Labs = append(data.Labs, viewLab(l))
			}
			return a.emit(answer{kind: "labs", data: data, lines: anys(data.Labs), table: func(w io.Writer, s style) {
				if len(ls) == 0 {
					a.say("no lab is up; built in: %s", strings.Join(labfile.Names(), ", "))
					return
				}
				t := table{head: []string{"LAB", "NODES", "TARGETS", "UP SINCE"}}
				for _, l := range ls {
					names := make([]string, len(l.Nodes))
					for i, n := range l.Nodes {
						names[i] = n.Name
					}
					t.add(s.bold(l.Name), qdisc.First(cellNames, names), qdisc.First(cellNames, l.Targets), l.Up.In(a.env.Now().Location()).Format("15:04:05"))
				}
				t.write(w, s)
				for _, l := range ls {
					if ended := endedServices(l); len(ended) > 0 {
						a.say("lab %s: ended by themselves: %s", l.Name, qdisc.Few(ended))
					}
				}
			}})
		}),
	}
}

// endedServices are the services that ended by themselves, each with how.
func endedServices(l lab.Info) (names []string) {
	for _, n := range l.Nodes {
		for _, s := range n.Services {
			if !s.Ended.IsZero() {
				names = append(names, fmt.Sprintf("%s (%s)", s.Name, s.Status))
			}
		}
	}
	return names
}

func (a *app) labExample() *cobra.Command {
	return &cobra.Command{
		Use: "example NAME", Short: "Print the file of a built-in lab", Args: arguments(1, "pg"), ValidArgsFunction: completeLabs,
		Long: "Print the file of a built-in lab, to begin one of your own with: " + strings.Join(labfile.Names(), ", ") + ".",
		RunE: a.do(func(_ *cobra.Command, args []string) error {
			text, ok := labfile.Text(args[0])
			if !ok {
				return &qdisc.FieldError{Field: "NAME", Value: args[0], Want: "a built-in lab: " + strings.Join(labfile.Names(), ", ")}
			}
			return a.emitText("lab_file", text)
		}),
	}
}

func (a *app) labSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of lab files", Args: arguments(0, ""),
		Long: "Print the JSON schema of lab files, by which editors complete and check them.",
		RunE: a.do(func(_ *cobra.Command, _ []string) error {
			text, err := labfile.Schema()
			if err != nil {
				return err
			}
			return a.emitText("lab_schema", text)
		}),
	}
}

// emitText is a file on standard output: as it is, or as the text of a JSON document.
func (a *app) emitText(kind string, text []byte) error {
	data := struct {
		Text string `json:"text"`
	}{string(text)}
	return a.emit(answer{kind: kind, data: data, table: func(w io.Writer, _ style) { _, _ = w.Write(text) }})
}

// completeLabs completes what can be brought up: a built-in lab, or a file.
func completeLabs(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return beginning(labfile.Names(), typed), cobra.ShellCompDirectiveDefault
}

// completeLabsUp completes the labs that are up.
func (a *app) completeLabsUp(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return beginning(a.labsUp(cmd.Context()), typed), cobra.ShellCompDirectiveNoFileComp
}

// labsUp are the names of the labs that are up; without an agent those that are built in.
func (a *app) labsUp(ctx context.Context) []string {
	agent, err := a.dial()
	if err != nil {
		return labfile.Names()
	}
	defer agent.Close()
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	ls, err := agent.Labs(ctx)
	if err != nil {
		return labfile.Names()
	}
	var names []string
	for _, l := range ls {
		names = append(names, l.Name)
	}
	return names
}
