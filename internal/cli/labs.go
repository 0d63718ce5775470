package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
)

func (a *app) lab() *cobra.Command {
	cmd := group(&cobra.Command{Use: "lab", Short: "Topologies of namespaces, links and services"})
	cmd.AddCommand(a.labUp(), a.labDown(), a.labList(), a.labShow(), a.labExec())
	return cmd
}

// labView is a lab as JSON.
type labView struct {
	Name    string     `json:"name"`
	Nodes   []nodeView `json:"nodes"`
	Targets []string   `json:"targets"`
	Up      time.Time  `json:"up"`
}

type nodeView struct {
	Name      string        `json:"name"`
	Namespace string        `json:"namespace"`
	Addresses []string      `json:"addresses"`
	Services  []serviceView `json:"services"`
}

type serviceView struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	PID     int    `json:"pid"`
	Address string `json:"address"`
	Log     string `json:"log"`
}

func viewLab(l lab.Info) labView {
	v := labView{Name: l.Name, Nodes: []nodeView{}, Targets: list(l.Targets), Up: l.Up}
	for _, n := range l.Nodes {
		node := nodeView{Name: n.Name, Namespace: n.Namespace, Addresses: []string{}, Services: []serviceView{}}
		for _, p := range n.Addresses {
			node.Addresses = append(node.Addresses, p.String())
		}
		for _, s := range n.Services {
			node.Services = append(node.Services, serviceView{Name: s.Name, Kind: s.Kind, PID: s.PID, Address: s.Address.String(), Log: s.Log})
		}
		v.Nodes = append(v.Nodes, node)
	}
	return v
}

func labText(l lab.Info) func(io.Writer, style) {
	return func(w io.Writer, s style) {
		fmt.Fprintf(w, "lab %s: targets %s\n", s.bold(l.Name), strings.Join(l.Targets, ", "))
		t := table{head: []string{"NODE", "NAMESPACE", "ADDRESSES", "SERVICES"}}
		for _, n := range viewLab(l).Nodes {
			var services []string
			for _, sv := range n.Services {
				services = append(services, fmt.Sprintf("%s %s (pid %d)", sv.Name, sv.Address, sv.PID))
			}
			t.add(n.Name, n.Namespace, dash(strings.Join(n.Addresses, " ")), dash(strings.Join(services, ", ")))
		}
		t.write(w, s)
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) labUp() *cobra.Command {
	return &cobra.Command{
		Use: "up NAME", Short: "Make a lab", Args: arguments(1, "pg"), ValidArgsFunction: completeLabs,
		Long: "Make a lab. Making one that is up changes nothing.",
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			info, err := agent.LabUp(cmd.Context(), labfile.Request{Name: args[0]}, func(step string) { a.say("%s", step) })
			if err != nil {
				return err
			}
			return a.emit(answer{kind: "lab", data: viewLab(info), table: labText(info)})
		}),
	}
}

func (a *app) labDown() *cobra.Command {
	return &cobra.Command{
		Use: "down NAME", Short: "Take a lab away, with its faults", Args: arguments(1, "pg"), ValidArgsFunction: completeLabs,
		Long: "Take a lab away, with its services and faults. Without one there is nothing to do.",
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			existed, err := agent.LabDown(cmd.Context(), args[0])
			if err != nil {
				return err
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
				a.say("lab %s was not up", args[0])
			}})
		}),
	}
}

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
					a.say("no lab is up; built in: %s", strings.Join(builtinLabs(), ", "))
					return
				}
				t := table{head: []string{"LAB", "NODES", "TARGETS", "UP SINCE"}}
				for _, l := range ls {
					names := make([]string, len(l.Nodes))
					for i, n := range l.Nodes {
						names[i] = n.Name
					}
					t.add(s.bold(l.Name), strings.Join(names, ", "), strings.Join(l.Targets, ", "),
						l.Up.In(a.env.Now().Location()).Format("15:04:05"))
				}
				t.write(w, s)
			}})
		}),
	}
}

func builtinLabs() []string {
	var names []string
	for _, d := range labfile.Builtins() {
		names = append(names, d.Name)
	}
	return names
}

func (a *app) labShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a lab that is up", Args: arguments(1, "pg"), ValidArgsFunction: completeLabs,
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			ls, err := agent.Labs(cmd.Context())
			if err != nil {
				return err
			}
			for _, l := range ls {
				if l.Name == args[0] {
					return a.emit(answer{kind: "lab", data: viewLab(l), table: labText(l)})
				}
			}
			return fault.WithHint(fmt.Errorf("lab %s is not up", args[0]), "netemctl lab up "+args[0])
		}),
	}
}

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
	completeWords(cmd, "lab", builtinLabs())
	return cmd
}
