package lab_test

import (
	"errors"
	"strings"
	"testing"

	"netemd/internal/lab/labfile"
	"netemd/qdisc"
)

func TestCheckSettings(t *testing.T) {
	tiers, _ := labfile.Builtin("tiers")
	echo, _ := labfile.Builtin("echo")
	for _, c := range []struct{ name, text, want string }{
		{"front", "{upstreams: {u: {at: 'back:80'}}}", ""},
		{"front", "", ""},
		{"fronts", "", `service "fronts": want a service of kind http-tier of the lab tiers: front, middle, back`},
		{"front-http", "", `service "front-http": want a service of kind http-tier`},
		{"front", "{upstreams: {u: {at: ['back:80', 'nowhere:80']}}}", "upstreams.u.at[1]"},
		{"front", "{work: 3h}", "work"},
	} {
		err := tiers.CheckSettings(c.name, []byte(c.text))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.name, c.text, err, c.want)
		}
	}
	var field *qdisc.FieldError
	if err := echo.CheckSettings("web", []byte("{}")); !errors.As(err, &field) || !strings.Contains(err.Error(), "and the lab echo has none") {
		t.Errorf("settings of an http-echo: %v", err)
	}
}
