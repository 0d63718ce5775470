package cli

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"netemd/internal/target"
)

func (a *app) target() *cobra.Command {
	cmd := group(&cobra.Command{Use: "target", Short: "Names that a fault or a probe can be aimed at"})
	cmd.AddCommand(a.targetList(), a.targetResolve())
	return cmd
}

// targetView is a target as JSON.
type targetView struct {
	Name            string    `json:"name"`
	Lab             string    `json:"lab"`
	Node            string    `json:"node"`
	Address         string    `json:"address"`
	Proxy           string    `json:"proxy"`
	ClientNamespace string    `json:"client_namespace"`
	ServerNamespace string    `json:"server_namespace"`
	To              placeView `json:"to"`
	From            placeView `json:"from"`
}

type placeView struct {
	Namespace string `json:"namespace"`
	Device    string `json:"device"`
	Index     int    `json:"index"`
	Hook      string `json:"hook"`
	Owned     bool   `json:"owned"`
	Flow      string `json:"flow"`
}

func viewTarget(t target.Target) targetView {
	return targetView{
		Name: t.Name, Lab: t.Lab, Node: t.Node, Address: endText(t.Address), Proxy: endText(t.Proxy),
		ClientNamespace: t.ClientNamespace, ServerNamespace: t.ServerNamespace, To: viewPlace(t.To), From: viewPlace(t.From),
	}
}

func viewPlace(p target.Place) placeView {
	return placeView{p.Namespace, p.Device, p.Index, string(p.Hook), p.Owned, p.Match.String()}
}

// endText is empty for an address that is not there.
func endText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func (a *app) targetList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the targets", Args: arguments(0, ""),
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, _ []string) error {
			ts, err := agent.Targets(cmd.Context())
			if err != nil {
				return err
			}
			data := struct {
				Targets []targetView `json:"targets"`
			}{Targets: []targetView{}}
			for _, t := range ts {
				data.Targets = append(data.Targets, viewTarget(t))
			}
			return a.emit(answer{kind: "targets", data: data, lines: anys(data.Targets), table: func(w io.Writer, s style) {
				if len(ts) == 0 {
					a.say("no target; make a lab: netemctl lab up pg")
					return
				}
				t := table{head: []string{"TARGET", "LAB", "NODE", "ADDRESS", "PROXY", "PACKETS TO IT PASS"}}
				for i, v := range data.Targets {
					t.add(s.bold(v.Name), dash(v.Lab), dash(v.Node), dash(v.Address), dash(v.Proxy), ts[i].To.String())
				}
				t.write(w, s)
			}})
		}),
	}
}

func (a *app) targetResolve() *cobra.Command {
	return &cobra.Command{
		Use: "resolve NAME", Short: "Say where a target's packets pass now", Args: arguments(1, "NAME"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return beginning(a.targetNames(cmd.Context()), typed), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			t, err := agent.Resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.emit(answer{kind: "target", data: viewTarget(t), table: func(w io.Writer, s style) {
				fmt.Fprintln(w, s.bold(t.Name))
				pairs(w, s, [][2]string{
					{"address", endText(t.Address)},
					{"proxy", endText(t.Proxy)},
					{"clients in", t.ClientNamespace},
					{"served in", t.ServerNamespace},
					{"to it", t.To.String() + ", " + t.To.Match.String()},
					{"from it", t.From.String() + ", " + t.From.Match.String()},
				})
			}})
		}),
	}
}
