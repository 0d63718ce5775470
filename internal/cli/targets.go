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
	cmd.AddCommand(a.targetList(), a.targetResolve(), a.targetAdd(), a.targetRemove())
	return cmd
}

// targetView is a target as JSON.
type targetView struct {
	Name            string    `json:"name"`
	Lab             string    `json:"lab"`
	Node            string    `json:"node"`
	Address         string    `json:"address"`
	Proxy           string    `json:"proxy"`
	HTTPProxy       string    `json:"http_proxy"`
	ClientNamespace string    `json:"client_namespace"`
	ServerNamespace string    `json:"server_namespace"`
	To              placeView `json:"to"`
	From            placeView `json:"from"`
	// Origin is config, added, lab or inline; Definition what the name stands for, empty of a
	// lab's target; Missing why it is nowhere now.
	Origin     target.Origin `json:"origin"`
	Definition string        `json:"definition"`
	Missing    string        `json:"missing"`
	// Moves says that it is looked for again while a fault lasts.
	Moves bool `json:"moves"`
	// Engines are what each engine would do there, where that was asked for.
	Engines []engineView `json:"engines,omitempty"`
}

type engineView struct {
	Engine      string `json:"engine"`
	To          string `json:"to"`
	From        string `json:"from"`
	Unavailable string `json:"unavailable"`
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
	v := targetView{
		Name: t.Name, Lab: t.Lab, Node: t.Node, Address: endText(t.Address), Proxy: endText(t.Proxy), HTTPProxy: endText(t.HTTPProxy),
		ClientNamespace: t.ClientNamespace, ServerNamespace: t.ServerNamespace, To: viewPlace(t.To), From: viewPlace(t.From),
		Origin: t.Origin, Definition: t.Definition.String(), Missing: t.Missing, Moves: t.Moves,
	}
	for _, e := range t.Engines {
		v.Engines = append(v.Engines, engineView(e))
	}
	return v
}

// proxiesText are a target's proxies, the one of streams first.
func proxiesText(v targetView) string {
	switch {
	case v.HTTPProxy == "":
		return v.Proxy
	case v.Proxy == "":
		return "http " + v.HTTPProxy
	}
	return v.Proxy + ", http " + v.HTTPProxy
}

func viewPlace(p target.Place) placeView {
	return placeView{p.Namespace, p.Device, p.Index, string(p.Hook), p.Owned, p.Match.String()}
}

// endText is empty for an address that is not there, and has a port where one is meant.
func endText(a netip.AddrPort) string {
	switch {
	case !a.IsValid():
		return ""
	case a.Port() == 0:
		return a.Addr().String()
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
					a.say("no target; make a lab: netemctl lab up pg; or aim at what runs here: --target container:NAME, pid:N, host:NAME")
					return
				}
				t := table{head: []string{"TARGET", "FROM", "STANDS FOR", "ADDRESS", "PROXY", "PACKETS TO IT PASS"}}
				for i, v := range data.Targets {
					stands, where := v.Definition, ts[i].To.String()
					if v.Lab != "" {
						stands = v.Node + " of lab " + v.Lab
					}
					if v.Missing != "" {
						where = "nowhere: " + v.Missing
					}
					t.add(s.bold(v.Name), dash(string(v.Origin)), dash(stands), dash(v.Address), dash(proxiesText(v)), where)
				}
				t.write(w, s)
			}})
		}),
	}
}

func (a *app) targetResolve() *cobra.Command {
	return &cobra.Command{
		Use: "resolve NAME", Short: "Say where a target's packets pass now: device, flow and direction, and each engine's placement", Args: arguments(1, "NAME"),
		ValidArgsFunction: a.completeTargetName,
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			t, err := agent.Resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.emit(answer{kind: "target", data: viewTarget(t), table: func(w io.Writer, s style) {
				fmt.Fprintln(w, s.bold(t.Name))
				rows := [][2]string{
					{"stands for", t.Definition.String()},
					{"from", string(t.Origin)},
					{"address", endText(t.Address)},
					{"proxy", endText(t.Proxy)},
					{"http-proxy", endText(t.HTTPProxy)},
					{"clients in", t.ClientNamespace},
					{"served in", t.ServerNamespace},
				}
				rows = append(rows, ways(t)...)
				if t.Moves {
					rows = append(rows, [2]string{"moves", "looked up again while a fault lasts: its addresses, and the way there"})
				}
				for _, e := range t.Engines {
					switch {
					case e.Unavailable != "":
						rows = append(rows, [2]string{e.Engine, "not here: " + e.Unavailable})
					default:
						rows = append(rows, [2]string{e.Engine + ", to", e.To}, [2]string{e.Engine + ", from", e.From})
					}
				}
				pairs(w, s, rows)
			}})
		}),
	}
}

// ways are where packets to a target and from it pass; of somebody's Toxiproxy there are none.
func ways(t target.Target) [][2]string {
	if t.Toxiproxy != nil {
		return [][2]string{{"meets", "the connections of " + t.Toxiproxy.Words()}}
	}
	return [][2]string{{"to it", passing(t.To)}, {"from it", passing(t.From)}}
}

// passing says where packets pass, and which.
func passing(p target.Place) string { return p.String() + ", " + p.Match.String() }
