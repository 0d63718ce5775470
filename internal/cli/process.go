package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/qdisc"
)

const processUse = " LAB/SERVICE... [flags] [-- CMD...]"

const processLong = `A service is named as 'netemctl lab show' prints it, LAB/SERVICE, or by SERVICE alone
where one lab only has it. It fails once; with --every again and again, and of several
services one that is up is drawn each time, so that never more than --at-most are down.
Times and services follow from --seed: --dry-run prints them.

However the fault ends, and the agent with it, the services run again. One that was put
back is waited for until it answers, as its lab asks; 'netemctl show ID' has the times.
`

func (a *app) process() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "process", Short: "Kill, stop and restart services of a lab",
		Long: "Kill, stop and restart services of a lab.\n\n" + processLong,
	})
	cmd.AddCommand(
		a.processCommand(fault.Kill, "Kill services, and start them again",
			"All processes of the service get SIGKILL. It is started again after --down."),
		a.processCommand(fault.Stop, "Stop services, and let them go on",
			"All processes of the service get SIGSTOP: connections stay open, and nothing answers.\nThey get SIGCONT after --down."),
		a.processCommand(fault.Restart, "Stop services by their own way, and start them again",
			"The service is stopped as its lab would (SIGTERM; of PostgreSQL its fast shutdown), and\nstarted again, after a pause of --down if it is said."),
	)
	return cmd
}

func (a *app) processCommand(action fault.OutageAction, short, long string) *cobra.Command {
	o := fault.Outage{Action: action}
	var l lasting
	var dryRun bool
	down := "how long each is down, 0s until the fault ends"
	if action == fault.Restart {
		down = "pause between the end and the start"
	} else {
		o.Down = fault.DefaultDown
	}
	cmd := &cobra.Command{
		Use: string(action) + processUse, Short: short, Long: long + "\n\n" + processLong, DisableFlagsInUseLine: true, ValidArgsFunction: a.completeServices,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		n := len(args) - len(dashed(cmd, args))
		if n == 0 {
			return fault.WithHint(fmt.Errorf("%s: want a service of a lab", below(cmd)), "write: "+cmd.CommandPath()+" LAB/SERVICE, such as pg/postgres")
		}
		return a.argumentsAndCommand(n, form(cmd))(cmd, args)
	}
	flags := cmd.Flags()
	flags.Var(typed(&o.Down, "TIME", qdisc.ParseDuration, nil), "down", down+" (default "+qdisc.FormatDuration(o.Down)+")")
	flags.Var(typed(&o.Every, "TIME", positive, nil), "every", "again and again, with this time between two beginnings")
	flags.Var(typed(&o.Jitter, "PERCENT", qdisc.ParsePercent, nil), "jitter", "vary each --every by up to this share, either way, at most 50%")
	flags.Var(typed(&o.Count, "N", wholeNumber, nil), "count", "how many times with --every (default until the fault ends)")
	flags.Var(typed(&o.AtMost, "N", wholeNumber, nil), "at-most", "how many services may be down at once (default 1)")
	flags.Var(typed(&o.Seed, "N", unsigned[uint64](64, 0), nil), "seed", "draw other times and services (default 0)")
	flags.Var(typed(&l.ttl, "TIME", positive, nil), "ttl", "end the fault by itself after this time, also while CMD runs (default when all is done; with -- CMD when CMD ends)")
	flags.Var(typed(&l.wait, "TIME", positive, nil), "wait", "wait up to this time for the end of a fault that is in the way")
	flags.BoolVar(&dryRun, "dry-run", false, "print the timetable; needs neither root nor an agent")
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		argv := dashed(cmd, args)
		o := o
		o.Services = args[:len(args)-len(argv)]
		spec := fault.Spec{Outage: &o}
		l.fillSpec(&spec)
		if err := outageFields(spec.Validate()); err != nil {
			return err
		}
		return a.runFault(cmd, spec, handling{dryRun: dryRun}, argv)
	})
	return cmd
}

// wholeNumber is a whole number from 1.
func wholeNumber(s string) (int, error) {
	n, err := unsigned[uint32](31, 1)(s)
	return int(n), err
}

// outageFields gives the errors of an outage the names of the flags.
func outageFields(err error) error {
	return qdisc.Renamed(err, func(field string) string {
		if field == "services" || field == "action" {
			return field
		}
		return "--" + field
	})
}

// completeServices completes the services of the labs that are up.
func (a *app) completeServices(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	agent, err := a.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer agent.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	labs, err := agent.Labs(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	named := map[string]bool{}
	for _, s := range args {
		named[s] = true
	}
	var names []string
	for _, l := range labs {
		for _, n := range l.Nodes {
			for _, s := range n.Services {
				if key := l.Name + "/" + s.Name; !named[key] {
					names = append(names, key+"\t"+strings.TrimSpace(s.Kind+" in node "+n.Name))
				}
			}
		}
	}
	return beginning(names, typed), cobra.ShellCompDirectiveNoFileComp
}
