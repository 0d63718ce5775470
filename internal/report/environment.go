package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"netemd/probe"
)

// TCP says in one line what decided the timers of a run's connections; "" where that is
// not known.
func TCP(e *probe.Environment) string {
	if e == nil {
		return ""
	}
	var parts []string
	if e.Client != nil {
		parts = tcpParts(*e.Client)
	}
	for _, c := range e.Connections[:min(1, len(e.Connections))] { // all of a run are alike, and the JSON has all
		parts = append(parts, socketParts(c.SocketSettings)...)
		if e.Client != nil && c.Congestion != e.Client.Congestion {
			parts = append(parts, "the probe's own sockets "+c.Congestion)
		}
	}
	if e.Server != nil {
		if e.Client == nil {
			parts = append(parts, prefixed("server: ", tcpParts(*e.Server))...)
		} else {
			own := tcpParts(*e.Client)
			differ := slices.DeleteFunc(tcpParts(*e.Server), func(p string) bool { return slices.Contains(own, p) })
			parts = append(parts, prefixed("server: ", differ)...)
		}
	}
	if e.Kernel != "" {
		parts = append(parts, "kernel "+e.Kernel)
	}
	return strings.Join(parts, ", ")
}

func prefixed(prefix string, parts []string) []string {
	if len(parts) > 0 {
		parts[0] = prefix + parts[0]
	}
	return parts
}

func tcpParts(n probe.NamespaceTCP) []string {
	of := func(from, usual string) string {
		if from == probe.FromRoute {
			return " (route)"
		}
		return usual
	}
	parts := []string{
		n.Congestion + of(n.CongestionFrom, ""),
		"rto_min " + strconv.FormatFloat(n.RTOMin, 'f', -1, 64) + " ms" + of(n.RTOMinFrom, ""),
	}
	if n.EarlyRetransmit != nil {
		state := "off"
		if n.TLP() {
			state = "on"
		}
		parts = append(parts, "loss probes "+state)
	}
	if n.SYNLinearTimeouts != nil {
		parts = append(parts, fmt.Sprintf("tcp_syn_linear_timeouts %d", *n.SYNLinearTimeouts))
	} else {
		parts = append(parts, "SYN timeouts double from 1 s")
	}
	if n.Retries2 != nil {
		parts = append(parts, fmt.Sprintf("tcp_retries2 %d", *n.Retries2))
	}
	return parts
}

func socketParts(s probe.SocketSettings) []string {
	keepalive := "no keepalive"
	if s.KeepAlive {
		keepalive = fmt.Sprintf("keepalive %d s + %d x %d s", s.KeepIdle, s.KeepCount, s.KeepInterval)
	}
	timeout := "no user timeout"
	if s.UserTimeoutMS > 0 {
		timeout = fmt.Sprintf("user timeout %d ms", s.UserTimeoutMS)
	}
	return []string{keepalive, timeout}
}

// environmentLabels are the same for machines, as names and values in their order.
func environmentLabels(e *probe.Environment) (labels [][2]string) {
	if e == nil {
		return nil
	}
	add := func(name, value string) { labels = append(labels, [2]string{name, value}) }
	if e.Kernel != "" {
		add("kernel_release", e.Kernel)
	}
	for _, side := range []struct {
		name string
		n    *probe.NamespaceTCP
	}{{"client", e.Client}, {"server", e.Server}} {
		if side.n == nil {
			continue
		}
		n := *side.n
		for _, v := range []struct {
			name  string
			value *int
		}{
			{"tcp_syn_linear_timeouts", n.SYNLinearTimeouts}, {"tcp_syn_retries", n.SYNRetries}, {"tcp_synack_retries", n.SYNACKRetries},
			{"tcp_early_retrans", n.EarlyRetransmit}, {"tcp_recovery", n.Recovery}, {"tcp_retries1", n.Retries1}, {"tcp_retries2", n.Retries2},
		} {
			if v.value != nil {
				add(side.name+"_"+v.name, strconv.Itoa(*v.value))
			}
		}
		add(side.name+"_rto_min_ms", strconv.FormatFloat(n.RTOMin, 'f', -1, 64))
		add(side.name+"_rto_min_from", n.RTOMinFrom)
		add(side.name+"_congestion_control", n.Congestion)
		add(side.name+"_congestion_control_from", n.CongestionFrom)
	}
	for _, c := range e.Connections[:min(1, len(e.Connections))] {
		add("connection_congestion_control", c.Congestion)
		add("connection_tcp_user_timeout_ms", strconv.Itoa(c.UserTimeoutMS))
		add("connection_keepalive", strconv.FormatBool(c.KeepAlive))
		if c.KeepAlive {
			add("connection_tcp_keepidle_s", strconv.Itoa(c.KeepIdle))
			add("connection_tcp_keepintvl_s", strconv.Itoa(c.KeepInterval))
			add("connection_tcp_keepcnt", strconv.Itoa(c.KeepCount))
		}
	}
	return labels
}

// writeEnvironment is those labels as OpenMetrics' info.
func writeEnvironment(b *strings.Builder, e *probe.Environment, common string) {
	labels := environmentLabels(e)
	if len(labels) == 0 {
		return
	}
	b.WriteString("# TYPE netemd_probe_environment info\n# HELP netemd_probe_environment What decided the timers of TCP.\nnetemd_probe_environment_info{" + common)
	for _, l := range labels {
		fmt.Fprintf(b, `,%s="%s"`, l[0], escaped(l[1]))
	}
	b.WriteString("} 1\n")
}

// environmentAttributes are those labels as attributes of OTLP's resource.
func environmentAttributes(e *probe.Environment) (all []attribute) {
	for _, l := range environmentLabels(e) {
		name := "netemd.environment." + l[0]
		if l[0] == "kernel_release" {
			name = "os.version"
		}
		all = append(all, text(name, l[1]))
	}
	return all
}
