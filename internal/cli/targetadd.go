package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

const (
	wantContainer = "a container's name or the beginning of its id"
	wantHost      = "an address or a host name"
)

// parseNamespace reads what a namespace may be called.
func parseNamespace(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", &qdisc.FieldError{Value: s, Want: wantNamespace}
	}
	ref, err := namespaces.ParseReference(s)
	if err != nil {
		return "", &qdisc.FieldError{Value: s, Want: namespaces.WantReference}
	}
	return ref, nil
}

// parseWithin is parseNamespace of one that may have a device behind it.
func parseWithin(s string) (string, error) {
	i := strings.LastIndexByte(s, '%')
	if i < 0 {
		return parseNamespace(s)
	}
	ref, err := parseNamespace(s[:i])
	if err == nil {
		if err = namespaces.CheckDevice(s[i+1:]); err != nil {
			err = &qdisc.FieldError{Value: s, Want: wantNamespace + ", a device behind a '%'"}
		}
	}
	return ref + s[i:], err
}

func parsePID(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return 0, &qdisc.FieldError{Value: s, Want: "the number of a process, such as 4711"}
	}
	return n, nil
}

func parseAddressIn(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, &qdisc.FieldError{Value: s, Want: "a prefix, such as 198.51.100.0/24"}
	}
	return p, nil
}

// subjects are the flags of 'target add' that say what a name stands for, in the words of
// target.Definition's fields.
var subjects = []string{"container", "pid", "host", "cgroup", "unit", "toxiproxy", "dev", "address-in", "netns"}

func (a *app) targetAdd() *cobra.Command {
	var d target.Definition
	cmd := &cobra.Command{
		Use: "add NAME (--container|--pid|--host|--cgroup|--unit|--toxiproxy|--dev|--address-in|--netns) WHAT [--port PORT] [--protocol NAME]", DisableFlagsInUseLine: true,
		Short: "Give a container, a process, a host or a device a name", Args: arguments(1, "NAME"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			d.Name = args[0]
			if d.Kind() == "" {
				return usageError{errors.New("target add: want one of --" + strings.Join(subjects, ", --"))}
			}
			if err := d.Validate(); err != nil {
				return err
			}
			t, err := agent.AddTarget(cmd.Context(), d)
			if err != nil {
				return err
			}
			return a.emit(answer{kind: "target", data: viewTarget(t), table: func(w io.Writer, s style) {
				fmt.Fprintf(w, "target %s is %s\n", s.bold(t.Name), t.Definition)
				pairs(w, s, ways(t))
			}})
		}),
	}
	flags := cmd.Flags()
	flags.Var(once(&d.Container, "NAME", wantContainer), "container", "the container of that `NAME`, or whose id begins so")
	flags.Var(typed(&d.PID, "N", parsePID, nil), "pid", "the network namespace of the process `N`")
	flags.Var(once(&d.Host, "HOST", wantHost), "host", "the `HOST` of that name or address, on the way that the routes say")
	flags.Var(once(&d.Cgroup, "PATH", "the path of a cgroup, such as /payments/api"), "cgroup", "the processes of the cgroup at `PATH`")
	flags.Var(once(&d.Unit, "UNIT", "the name of a systemd unit"), "unit", "the processes of the systemd `UNIT`")
	flags.Var(once(&d.Toxiproxy, "PROXY@HOST:PORT", "a proxy of a Toxiproxy that runs already, such as redis@127.0.0.1:8474"), "toxiproxy", "a proxy of a Toxiproxy that runs already: `PROXY@HOST:PORT`")
	flags.Var(once(&d.Device, "DEV", wantDevice), "dev", "the device `DEV`; beside --container and --pid the one of several in there, beside --cgroup and --unit that of their packets; by itself or beside --netns that device itself: to it is what leaves there")
	flags.Var(typed(&d.AddressIn, "PREFIX", parseAddressIn, nil), "address-in", "the one device with an address in `PREFIX`")
	flags.Var(typed(&d.Namespace, "NAME", parseWithin, nil), "netns", "the network namespace `NAME` (or its path, or pid:N), with %DEV behind it by that device of several: to it is what arrives there; beside others the one in which they are looked for")
	flags.Var(listed(&d.Ports, "PORT", target.ParsePorts), "port", "only these ports of it, such as 5432 or 8000-8100")
	flags.Var(typed(&d.Protocol, "NAME", parseProtocol, nil), "protocol", "only tcp, udp, icmp, icmpv6, sctp or a protocol's number")
	completeWords(cmd, "protocol", []string{"tcp", "udp", "icmp", "icmpv6", "sctp"})
	a.completeDevices(cmd, &d.Namespace)
	return cmd
}

func parseProtocol(s string) (target.Protocol, error) {
	n, err := target.ParseProtocol(s)
	return target.Protocol(n), err
}

func (a *app) targetRemove() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "Take away a name that was added", Args: arguments(1, "NAME"), ValidArgsFunction: a.completeTargetName,
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			cleared, err := agent.RemoveTarget(cmd.Context(), args[0], force)
			if err != nil {
				return err
			}
			view := struct {
				Name    string   `json:"name"`
				Cleared []string `json:"cleared"`
			}{args[0], idsOf(cleared)}
			return a.emit(answer{kind: "target_removed", data: view, table: func(w io.Writer, s style) {
				fmt.Fprintf(w, "target %s removed\n", s.bold(args[0]))
				if len(view.Cleared) > 0 {
					fmt.Fprintf(w, "cleared: %s\n", strings.Join(view.Cleared, ", "))
				}
			}})
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "clear the faults on it first")
	return cmd
}

func idsOf(fs []fault.Fault) []string {
	ids := []string{}
	for _, f := range fs {
		ids = append(ids, f.ID)
	}
	return ids
}

// completeTargetName completes the one argument of a command with the targets' names.
func (a *app) completeTargetName(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return beginning(a.targetNames(cmd.Context()), typed), cobra.ShellCompDirectiveNoFileComp
}
