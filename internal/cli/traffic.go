package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// way is a direction in the words of a target, or of a device.
type way string

// The ways. Egress and ingress are the device's words for to and from.
const (
	egress  way = "egress"
	ingress way = "ingress"
)

func (w way) direction() fault.Direction {
	switch w {
	case egress:
		return fault.To
	case ingress:
		return fault.From
	}
	return fault.Direction(w)
}

// spot is where a packet fault goes: a target, or a device and its traffic.
type spot struct {
	target string
	sel    target.Selector
	way    way
}

// flowFlags are the flags that need --dev.
var flowFlags = []string{
	"netns", "protocol", "tcp-flags", "dst", "port", "src", "src-port", "exclude-dst", "exclude-port", "cgroup", "control",
}

func (a *app) trafficFlags(cmd *cobra.Command, s *spot) {
	a.deviceFlags(cmd, &s.sel, "impair the device `DEV` instead of a target")
	flags := cmd.Flags()
	flags.Var(typed(&s.sel.Protocol, "NAME", target.ParseProtocol, nil), "protocol", "only tcp, udp, icmp, icmpv6, sctp or a protocol's number")
	flags.Var(tcpFlags(&s.sel), "tcp-flags", "only TCP packets with these flags set and, after a '!', those clear, such as 'syn,!ack'")
	flags.Var(listed(&s.sel.Peers, "HOST", word), "dst", "only with these hosts, addresses or CIDRs at the other end")
	flags.Var(listed(&s.sel.PeerPorts, "PORT", target.ParsePorts), "port", "only these ports at the other end, such as 5432 or 8000-8100")
	flags.Var(listed(&s.sel.Locals, "HOST", word), "src", "only with these hosts, addresses or CIDRs at this end")
	flags.Var(listed(&s.sel.LocalPorts, "PORT", target.ParsePorts), "src-port", "only these ports at this end")
	flags.Var(listed(&s.sel.ExcludePeers, "HOST", word), "exclude-dst", "leave these hosts, addresses or CIDRs alone")
	flags.Var(listed(&s.sel.ExcludePorts, "PORT", target.ParsePorts), "exclude-port", "leave these ports at either end alone")
	flags.Var(once(&s.sel.Cgroup, "GROUP", wantCgroup), "cgroup", "only the packets of the processes in this `GROUP`: a path of cgroup v2 such as /system.slice/pg.service, or a systemd unit's name")
	flags.BoolVar(&s.sel.Control, "control", false, "impair ARP and neighbour discovery, too; only for a whole device")
	completeWords(cmd, "protocol", []string{"tcp", "udp", "icmp", "icmpv6", "sctp"})
	one(cmd, &s.way, "direction", "packets to the target, from it, or both; of a --dev egress (to) or ingress (from)",
		way(fault.To), way(fault.From), way(fault.Both), egress, ingress)
}

// deviceFlags name a device.
func (a *app) deviceFlags(cmd *cobra.Command, s *target.Selector, usage string) {
	cmd.Flags().Var(once(&s.Device, "DEV", wantDevice), "dev", usage)
	cmd.Flags().Var(onceParsed(&s.Namespace, "NAME", wantNamespace, parseNamespace), "netns", "network namespace `NAME` of --dev, its path or pid:N (default the agent's)")
	a.completeDevices(cmd, &s.Namespace)
}

// fill puts the spot into a spec.
func (s spot) fill(cmd *cobra.Command, spec *fault.Spec) error {
	if err := s.check(cmd); err != nil {
		return err
	}
	spec.Target, spec.Direction = s.target, s.way.direction()
	if s.sel.Device != "" {
		sel := implied(s.sel)
		spec.Selector = &sel
	}
	return nil
}

// check refuses what does not fit together.
func (s spot) check(cmd *cobra.Command) error {
	device := cmd.Flags().Changed("dev")
	switch {
	case device && cmd.Flags().Changed("target"):
		return usageError{errors.New("want one of --target and --dev, not both")}
	case !device && s.target == "":
		return errNoSpot
	case !device && slices.Contains([]way{egress, ingress}, s.way):
		return fault.WithHint(
			usageError{fmt.Errorf("--direction %s: is said of a --dev", s.way)}, "of a target, write --direction "+string(s.way.direction()),
		)
	case device:
		return implied(s.sel).Validate()
	}
	for _, name := range flowFlags {
		if cmd.Flags().Changed(name) {
			return fault.WithHint(
				usageError{fmt.Errorf("--%s: needs --dev", name)}, "a target has a flow of its own; see it with: netemctl target resolve "+s.target,
			)
		}
	}
	return nil
}

var errNoSpot = fault.WithHint(
	usageError{errors.New("want the name of a --target, or of a device, --dev")}, "list targets with: netemctl target list",
)

// listed is a flag that may be repeated, and takes several values with commas.
func listed[T any](dst *[]T, kind string, parse func(string) (T, error)) pflag.Value {
	return &value{kind: kind, set: func(s string) error {
		for part := range strings.SplitSeq(s, ",") {
			got, err := parse(part)
			if err != nil {
				return err
			}
			*dst = append(*dst, got)
		}
		return nil
	}}
}

// tcpFlags is a flag of TCP flags, which may be repeated.
func tcpFlags(s *target.Selector) pflag.Value {
	return &value{kind: "FLAGS", set: func(text string) error {
		set, unset, err := target.ParseFlags(text)
		if err == nil {
			s.FlagsSet, s.FlagsClear = s.FlagsSet|set, s.FlagsClear|unset
		}
		return err
	}}
}

// implied is s with what need not be said: flags are of TCP.
func implied(s target.Selector) target.Selector {
	if s.Protocol == 0 && s.FlagsSet|s.FlagsClear != 0 {
		s.Protocol = protoTCP
	}
	return s
}

// word is text that is not empty.
func word(s string) (string, error) {
	if s == "" {
		return "", &qdisc.FieldError{Value: s, Want: "a name, an address or a CIDR such as 192.0.2.0/24"}
	}
	return s, nil
}

// safetyFlags are what goes with every packet fault that is applied.
func safetyFlags(cmd *cobra.Command, force *[]string, offload *string) {
	protections := []string{fault.ForceAgent, fault.ForceSSH, fault.ForceDefaultRoute}
	cmd.Flags().Var(listed(force, "WHAT", among(protections)), "force",
		"impair what is protected: agent (its connections), ssh (your session) or default-route (all of that device)")
	completeWords(cmd, "force", protections)
	cmd.Flags().Var(typed(offload, "off", among([]string{"off"}), nil), "offload",
		"off: no segmentation offload on the path while the fault lasts, so that it hits packets as on the wire")
	completeWords(cmd, "offload", []string{"off"})
}

// among reads one of a few words.
func among(words []string) func(string) (string, error) {
	return func(s string) (string, error) {
		if !slices.Contains(words, s) {
			return "", &qdisc.FieldError{Value: s, Want: either(words)}
		}
		return s, nil
	}
}
