package netemtest_test

import (
	"context"
	"testing"
	"time"

	"netemd/netemtest"
)

const outageLab = `
lab: outage
nodes:
  client: {}
  a: {services: [{name: api, kind: http-echo, port: 8080}]}
links:
  - {a: client, b: a}
targets:
  api: {node: a, client: client, protocol: tcp, port: 8080}
`

// A service of the test's own lab fails, and is back when the fault ends.
func TestKillAndStop(t *testing.T) {
	lab := netemtest.Lab(t, outageLab)
	client := lab.Node("client")
	connects := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := client.DialContext(ctx, "tcp", lab.Addr("api"))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	if !connects() {
		t.Fatal("the service does not answer")
	}
	f := netemtest.Kill(t, "api", 0)
	if connects() {
		t.Error("a killed service answers")
	}
	f.Clear()
	if !connects() {
		t.Error("it does not answer after the fault")
	}
	// A stopped one has its socket, and the kernel takes the connection.
	f = netemtest.Stop(t, "api", 100*time.Millisecond)
	if !connects() {
		t.Error("a stopped service refuses connections")
	}
	f.Clear()
}
