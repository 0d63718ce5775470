package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"netemd/probe"
)

func environment() *probe.Environment {
	n := func(v int) *int { return &v }
	client := probe.NamespaceTCP{
		SYNLinearTimeouts: n(4), EarlyRetransmit: n(3), Retries2: n(15),
		RTOMin: 200, RTOMinFrom: probe.FromSysctl, Congestion: "cubic", CongestionFrom: probe.FromSysctl,
	}
	server := client
	server.RTOMin, server.RTOMinFrom, server.EarlyRetransmit = 20, probe.FromRoute, n(0)
	e := &probe.Environment{Kernel: "6.18.1", Client: &client, Server: &server}
	e.Connected(probe.SocketSettings{Congestion: "cubic", NoDelay: true})
	return e
}

// TestTCP: what both ends have in common is said once.
func TestTCP(t *testing.T) {
	e := environment()
	alone := *e
	alone.Server = nil
	old := *e.Client
	old.SYNLinearTimeouts = nil
	kept := probe.Environment{Client: &old}
	kept.Connected(probe.SocketSettings{Congestion: "reno", KeepAlive: true, KeepIdle: 15, KeepCount: 9, KeepInterval: 5, UserTimeoutMS: 3000})
	for _, test := range []struct {
		name string
		e    *probe.Environment
		want string
	}{
		{"none", nil, ""},
		{"both", e, "cubic, rto_min 200 ms, loss probes on, tcp_syn_linear_timeouts 4, tcp_retries2 15, no keepalive, no user timeout, " +
			"server: rto_min 20 ms (route), loss probes off, kernel 6.18.1"},
		{"one", &alone, "cubic, rto_min 200 ms, loss probes on, tcp_syn_linear_timeouts 4, tcp_retries2 15, no keepalive, no user timeout, kernel 6.18.1"},
		{"older, with settings of its own", &kept, "cubic, rto_min 200 ms, loss probes on, SYN timeouts double from 1 s, tcp_retries2 15, " +
			"keepalive 15 s + 9 x 5 s, user timeout 3000 ms, the probe's own sockets reno"},
		{"the server alone", &probe.Environment{Server: e.Server}, "server: cubic, rto_min 20 ms (route), loss probes off, tcp_syn_linear_timeouts 4, tcp_retries2 15"},
	} {
		if got := TCP(test.e); got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
	}
}

// TestEnvironmentFiles: OpenMetrics and OTLP have it too.
func TestEnvironmentFiles(t *testing.T) {
	dir := t.TempDir()
	rec, err := Record(dir, probe.Request{Kind: probe.KindTCP, Target: "x"})
	if err != nil {
		t.Fatal(err)
	}
	res := ProbeResult{Kind: probe.KindTCP, Summary: rec.Summary("a test")}
	res.Environment = environment()
	if err := rec.Finish(res, time.Unix(7200, 0)); err != nil {
		t.Fatal(err)
	}
	want := "# TYPE netemd_probe_environment info\n# HELP netemd_probe_environment What decided the timers of TCP.\n" +
		`netemd_probe_environment_info{target="x",kind="tcp",layer="direct",kernel_release="6.18.1",` +
		`client_tcp_syn_linear_timeouts="4",client_tcp_early_retrans="3",client_tcp_retries2="15",client_rto_min_ms="200",client_rto_min_from="sysctl",` +
		`client_congestion_control="cubic",client_congestion_control_from="sysctl",` +
		`server_tcp_syn_linear_timeouts="4",server_tcp_early_retrans="0",server_tcp_retries2="15",server_rto_min_ms="20",server_rto_min_from="route",` +
		`server_congestion_control="cubic",server_congestion_control_from="sysctl",` +
		`connection_congestion_control="cubic",connection_tcp_user_timeout_ms="0",connection_keepalive="false"} 1` + "\n# EOF\n"
	text := string(read(t, dir, MetricsFile))
	if _, got, _ := strings.Cut(text, "# TYPE netemd_probe_environment"); "# TYPE netemd_probe_environment"+got != want {
		t.Errorf("metrics end with\n%s\nwant\n%s", got, want)
	}
	var m metricsv1.MetricsData
	if err := protojson.Unmarshal(bytes.TrimSpace(read(t, dir, OTLPMetricsFile)), &m); err != nil {
		t.Fatal(err)
	}
	attributes := map[string]string{}
	for _, a := range m.GetResourceMetrics()[0].GetResource().GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if attributes["os.version"] != "6.18.1" || attributes["netemd.environment.server_rto_min_ms"] != "20" || attributes["service.name"] != "netemd-probe" {
		t.Errorf("resource %v", attributes)
	}
}
