package agent

import (
	"io"
	"net/http"
	"testing"

	"netemd/internal/config"
)

// Where metrics are configured they are read, and show what is held and what happened.
func TestMetrics(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	agent, c := serveWith(t, Config{Settings: settings(func(c *config.Config) { c.Metrics.Listen = "127.0.0.1:0" })})
	apply(t, c, held(a))
	read := func() string {
		r, err := http.Get("http://" + agent.telemetry.Addr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	eventually(t, "the fault and its event are counted", func() bool {
		return says(read(), `netemd_faults{engine="ebpf",kind="packet",state="active"} 1`, `event="applied"`)
	})
	http.DefaultClient.CloseIdleConnections()
}
