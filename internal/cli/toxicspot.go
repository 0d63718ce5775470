package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// toxicSpot is where toxics go: a target's own proxy, one of a Toxiproxy that somebody else
// runs, or one that is to be made there.
type toxicSpot struct {
	target string
	at     target.Toxiproxy
}

const wantURL = "the address of a Toxiproxy's API, such as http://127.0.0.1:8474 or unix:/run/toxiproxy.sock"

func (a *app) toxicSpotFlags(cmd *cobra.Command, s *toxicSpot, l *lasting) {
	a.spotFlags(cmd, &s.target, l, nil)
	flags := cmd.Flags()
	flags.Lookup("target").Usage = "`NAME` of the target whose proxy it is; or --toxiproxy"
	flags.Var(once(&s.at.API, "URL", wantURL), "toxiproxy", "a Toxiproxy that runs already, by the `URL` of its API as the agent reaches it, instead of --target")
	flags.Var(once(&s.at.Name, "NAME", "the name of a proxy of that Toxiproxy"), "proxy", "the proxy `NAME` of that Toxiproxy; the toxics of others on it stay as they are")
	flags.Var(once(&s.at.Listen, "ADDRESS:PORT", "an address with a port, such as 127.0.0.1:15432"), "listen", "make a proxy there that listens at `ADDRESS:PORT`, until the fault ends")
	flags.Var(once(&s.at.Upstream, "HOST:PORT", "a host with a port, such as 127.0.0.1:5432"), "upstream", "what that one forwards to")
}

// name is what the fault is aimed at.
func (s *toxicSpot) name(cmd *cobra.Command) (string, error) {
	if s.at == (target.Toxiproxy{}) {
		if s.target == "" {
			return "", errNoTarget
		}
		return s.target, nil
	}
	switch {
	case s.target != "":
		return "", usageError{fmt.Errorf("%s: want one of --target and --toxiproxy, not both", below(cmd))}
	case s.at.API == "":
		return "", usageError{fmt.Errorf("%s: --proxy, --listen and --upstream belong to a --toxiproxy", below(cmd))}
	case s.at.Name == "" && (s.at.Listen == "" || s.at.Upstream == ""):
		return "", usageError{fmt.Errorf("%s: beside --toxiproxy want --proxy NAME, or --listen and --upstream of one to be made", below(cmd))}
	}
	at, err := s.at.Normalize()
	if err != nil {
		return "", flagged(err)
	}
	return at.Text(), nil
}

// seed refuses one that would have no effect.
func (s *toxicSpot) seed(toxics []fault.Toxic) error {
	for _, t := range toxics {
		if t.Seed != 0 && s.at != (target.Toxiproxy{}) {
			return &qdisc.FieldError{Field: "--seed", Value: strconv.FormatUint(t.Seed, 10),
				Want: "a --target with a proxy of netemd's: a Toxiproxy draws from a source of its own, which takes no seed"}
		}
	}
	return nil
}

// flagged names fields as the flags that they came from.
func flagged(err error) error {
	return qdisc.Renamed(err, func(field string) string { return "--" + field })
}

// toxicApply applies several toxics as one fault.
func (a *app) toxicApply() *cobra.Command {
	var toxics []fault.Toxic
	var spot toxicSpot
	var l lasting
	cmd := &cobra.Command{
		Use: "apply --toxic \"KIND KEY=VALUE...\"..." + dashUse, Short: "Several toxics at once, as one fault",
		Long: `Several toxics at once, as one fault. Each is its kind and its values, with their units:
"latency latency=300ms jitter=20ms", "bandwidth rate=100KBps to", "slicer average_size=64B
toxicity=30% seed=7". Without to or from (upstream or downstream) it is about what comes from the target.`,
		DisableFlagsInUseLine: true, ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return a.argumentsAndCommand(0, form(cmd))(cmd, args) }
	cmd.Flags().Var(&value{kind: "TOXIC", set: func(s string) error {
		t, err := fault.ParseToxic(s)
		if err == nil {
			toxics = append(toxics, t)
		}
		return toxicMistake(s, err)
	}}, "toxic", "a `TOXIC`, such as \"latency latency=300ms\"; may be said several times")
	a.toxicSpotFlags(cmd, &spot, &l)
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		if len(toxics) == 0 {
			return usageError{fmt.Errorf("%s: --toxic is required", below(cmd))}
		}
		name, err := spot.name(cmd)
		if err != nil {
			return err
		}
		if err := spot.seed(toxics); err != nil {
			return err
		}
		spec := fault.Spec{Target: name, Toxics: toxics}
		l.fillSpec(&spec)
		if err := spec.Validate(); err != nil {
			return err
		}
		return a.runFault(cmd, spec, handling{}, dashed(cmd, args))
	})
	return cmd
}

// toxicMistake says which of a toxic's values is wrong.
func toxicMistake(text string, err error) error {
	f, ok := errors.AsType[*qdisc.FieldError](err)
	if !ok || f.Field == "" || f.Field == "toxic" {
		return err
	}
	return &qdisc.FieldError{Value: text, Why: f.Error()}
}
