package cli

import (
	"testing"

	"netemd/internal/client"
)

func TestEndpoint(t *testing.T) {
	tls := client.Endpoint{Address: "a:1", Certificate: "c", Key: "k", CA: "ca", ServerName: "n"}
	env := map[string]string{"NETEMD_ADDRESS": "a:1", "NETEMD_TLS_CERT": "c", "NETEMD_TLS_KEY": "k", "NETEMD_TLS_CA": "ca", "NETEMD_TLS_SERVER_NAME": "n"}
	mixed := tls
	mixed.Address, mixed.Certificate = "b:2", "d"
	for _, c := range []struct {
		env  map[string]string
		args []string
		want client.Endpoint
	}{
		{nil, nil, client.Endpoint{}},
		{map[string]string{"NETEMD_SOCKET": "/a"}, nil, client.Endpoint{Socket: "/a"}},
		{map[string]string{"NETEMD_SOCKET": "/a"}, []string{"--socket", "/b"}, client.Endpoint{Socket: "/b"}},
		{env, nil, tls},
		{env, []string{"--socket", "/b"}, client.Endpoint{Socket: "/b"}},
		{env, []string{"--address", "b:2", "--tls-cert", "d"}, mixed},
		{map[string]string{"NETEMD_SOCKET": "/a"}, []string{"--address", "a:1", "--tls-cert", "c", "--tls-key", "k", "--tls-ca", "ca", "--tls-server-name", "n"}, tls},
	} {
		w := world{agent: newFakeAgent(), env: c.env}
		if code := w.run(t.Context(), append(c.args, "list")...); code != 0 || w.endpoint != c.want {
			t.Errorf("%v %v: exit code %d, %+v, want %+v: %s", c.env, c.args, code, w.endpoint, c.want, w.stderr.String())
		}
	}
	env["NETEMD_SOCKET"] = "/a"
	w := world{agent: newFakeAgent(), env: env}
	if code := w.run(t.Context(), "list"); code != exitUsage {
		t.Errorf("two variables: exit code %d: %s", code, w.stderr.String())
	}
}
