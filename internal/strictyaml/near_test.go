package strictyaml

import "testing"

func TestNear(t *testing.T) {
	names := []string{"client", "server", "db", "db2", "web"}
	for name, want := range map[string]string{
		"clinet": "client", "sever": "server", "servers": "server", "dbb": "", "wbe": "web", "x": "", "": "", "something": "", "client": "client",
	} {
		if got := Near(name, names); got != want {
			t.Errorf("Near(%q) = %q, want %q", name, got, want)
		}
	}
	if got := Near("db3", []string{"db1", "db2"}); got != "" {
		t.Errorf("of two that are as near: %q", got)
	}
}
