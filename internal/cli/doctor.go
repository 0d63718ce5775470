package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/feature"
)

// needs are the features without which an engine does not work at all.
var needs = map[fault.Engine][]string{
	fault.Netem: {"sch_netem"},
	fault.EBPF:  {"tcx", "tun"},
}

// doctorView is the doctor's finding as JSON.
type doctorView struct {
	Agent      reachedView   `json:"agent"`
	Kernel     string        `json:"kernel"`
	AutoEngine fault.Engine  `json:"auto_engine"`
	AutoReason string        `json:"auto_reason"`
	Features   []featureView `json:"features"`
	// Missing are the features that were asked for and are not there.
	Missing []string `json:"missing"`
	// ProxyLayer works on every kernel.
	ProxyLayer      bool     `json:"proxy_layer"`
	StaleNamespaces []string `json:"stale_namespaces"`
}

// reachedView is the agent that answered, and how it was reached; Socket or Address is null.
type reachedView struct {
	Socket  *string `json:"socket"`
	Address *string `json:"address"`
	Version string  `json:"version"`
	PID     int     `json:"pid"`
}

// reached is how e was reached.
func reached(e client.Endpoint, v client.AgentVersion) reachedView {
	r := reachedView{Version: v.Version, PID: v.PID}
	if e.Address != "" {
		r.Address = new(e.Address)
	} else {
		r.Socket = new(e.String())
	}
	return r
}

func (r reachedView) String() string {
	by := "over TCP with mutual TLS at "
	at := r.Address
	if r.Socket != nil {
		by, at = "by the unix socket ", r.Socket
	}
	return fmt.Sprintf("agent %s, process %d, reached %s%s", r.Version, r.PID, by, *at)
}

type featureView struct {
	Name   string        `json:"name"`
	State  feature.State `json:"state"`
	Detail string        `json:"detail"`
	Hint   string        `json:"hint"`
}

func (a *app) doctor() *cobra.Command {
	var engine fault.Engine
	cmd := &cobra.Command{
		Use: "doctor [--engine ENGINE]", Short: "What this kernel can do, by trying it", DisableFlagsInUseLine: true,
		Long: `Say what this kernel can do, by what netemd found when it tried. It exits 6 when
something is missing. With --engine only what that engine needs is checked: auto is
content with either.`,
		Args: arguments(0, ""), ValidArgsFunction: cobra.NoFileCompletions,
	}
	one(cmd, &engine, "engine", "check only what this engine needs", fault.Auto, fault.Netem, fault.EBPF)
	cmd.RunE = a.withAgent(func(cmd *cobra.Command, agent Agent, _ []string) error {
		r, err := agent.Features(cmd.Context())
		if err != nil {
			return err
		}
		version, err := agent.Version(cmd.Context())
		if err != nil {
			return err
		}
		at, err := a.endpoint()
		if err != nil {
			return err
		}
		v := a.diagnose(r, engine)
		v.Agent = reached(at, version)
		if err := a.emit(answer{kind: "doctor", data: v, table: doctorText(v)}); err != nil {
			return err
		}
		if len(v.Missing) > 0 {
			err := fmt.Errorf("doctor: kernel %s lacks %s: %w", v.Kernel, strings.Join(v.Missing, ", "), errors.ErrUnsupported)
			if v.AutoEngine != "" {
				return fault.WithHint(err, fmt.Sprintf("packet faults work here all the same: engine auto takes %s", v.AutoEngine))
			}
			return fault.WithHint(err, "only the proxy layer works here: netemctl toxic")
		}
		return nil
	})
	return cmd
}

func (a *app) diagnose(r feature.Report, engine fault.Engine) doctorView {
	v := doctorView{
		Kernel: r.Kernel, AutoEngine: r.Auto, AutoReason: r.AutoReason, Features: []featureView{}, Missing: []string{},
		ProxyLayer: true, StaleNamespaces: []string{},
	}
	asked := needs[engine]
	for _, f := range r.Features {
		v.Features = append(v.Features, featureView{f.Name, f.State, f.Detail, hintFor(f, r.Kernel)})
		if engine == "" && f.State != feature.Yes {
			v.Missing = append(v.Missing, f.Name)
		}
	}
	for _, name := range asked {
		found := slices.ContainsFunc(r.Features, func(f feature.Feature) bool { return f.Name == name && f.State == feature.Yes })
		if !found {
			v.Missing = append(v.Missing, name)
		}
	}
	if engine == fault.Auto && r.Auto == "" {
		v.Missing = append(v.Missing, "an engine for packet faults")
	}
	stale, err := a.env.StaleNamespaces()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		a.say("netemctl: %s", oneLine(err))
	}
	v.StaleNamespaces = append(v.StaleNamespaces, stale...)
	return v
}

// hintFor is the agent's hint, or for sch_netem the fix for each family of
// distributions.
func hintFor(f feature.Feature, kernel string) string {
	if f.Hint != "" || f.State == feature.Yes || f.Name != "sch_netem" {
		return f.Hint
	}
	return fmt.Sprintf("Fedora, RHEL: install kernel-modules-extra-%[1]s; Ubuntu: linux-modules-extra-%[1]s; "+
		"elsewhere a kernel or virtual machine with CONFIG_NET_SCH_NETEM", kernel)
}

func doctorText(v doctorView) func(io.Writer, style) {
	return func(w io.Writer, s style) {
		fmt.Fprintln(w, v.Agent)
		fmt.Fprintf(w, "kernel %s\n", s.bold(v.Kernel))
		t := table{head: []string{"FEATURE", "STATE", "DETAIL"}}
		for _, f := range v.Features {
			state := s.warning(string(f.State))
			switch f.State {
			case feature.Yes:
				state = s.good(string(f.State))
			case feature.No:
				state = s.bad(string(f.State))
			}
			t.add(f.Name, state, dash(f.Detail))
		}
		t.write(w, s)
		for _, f := range v.Features {
			if f.Hint != "" && f.State != feature.Yes {
				wrap(w, fmt.Sprintf("%s: %s", f.Name, f.Hint))
			}
		}
		if v.AutoEngine != "" {
			wrap(w, fmt.Sprintf("engine auto takes %s%s", v.AutoEngine, because(v.AutoReason)))
		} else {
			wrap(w, "no engine can carry a packet fault here"+because(v.AutoReason))
		}
		fmt.Fprintln(w, "the proxy layer (netemctl toxic) works on every kernel")
		for _, name := range v.StaleNamespaces {
			fmt.Fprintf(w, "stale: /run/netns/%s is not a network namespace (nsfs); remove it: ip netns del %s\n", name, name)
		}
	}
}
