package target

import (
	"errors"
	"testing"

	"netemd/qdisc"
)

func TestCgroupOverlap(t *testing.T) {
	web := Cgroup{Path: "/s/web", ID: 10, Level: 2}
	db := Cgroup{Path: "/s/db", ID: 11, Level: 2}
	worker := Cgroup{Path: "/s/web/worker", ID: 12, Level: 3}
	other := Cgroup{Path: "/s/website/x", ID: 13, Level: 3}
	nameless := Cgroup{ID: 14, Level: 3}
	all := Match{}
	port := Match{Include: []Flow{{Protocol: 6, SourcePorts: Port(80)}}}
	for _, tt := range []struct {
		name string
		a, b Match
		want bool
	}{
		{"itself", all.Of(web), all.Of(web), true},
		{"beside", all.Of(web), all.Of(db), false},
		{"below", all.Of(web), all.Of(worker), true},
		{"a name that begins alike", all.Of(web), all.Of(other), false},
		{"without paths nobody knows", all.Of(web), all.Of(nameless), true},
		{"everybody", all.Of(web), all, true},
		{"the other end", all.Of(web), all.Of(db).Reverse(), true},
		{"both ends of others", all.Of(web).Reverse(), all.Of(db).Reverse(), false},
		{"another port", port.Of(web), Match{Include: []Flow{{SourcePorts: Port(81)}}}.Of(web), false},
		{"all but the group", all.Of(web), Match{Exclude: all.Of(web).Include}, false},
		{"all but the one above", all.Of(worker), Match{Exclude: all.Of(web).Include}, false},
		{"all but the one below", all.Of(web), Match{Exclude: all.Of(worker).Include}, true},
	} {
		if got := tt.a.Overlaps(tt.b); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
		if got := tt.b.Overlaps(tt.a); got != tt.want {
			t.Errorf("%s, the other way round: %t, want %t", tt.name, got, tt.want)
		}
	}
	renamed := web
	renamed.Path = "/elsewhere/web"
	if all.Of(web).Key() != all.Of(renamed).Key() || all.Of(web).Key() == all.Of(db).Key() || all.Of(web).Key() == all.Of(web).Reverse().Key() || all.Of(web).Key() == all.Key() {
		t.Error("a key is of the group's number and end, and of nothing else")
	}
	if !all.Of(web).Mirrors(all.Of(web).Reverse()) || all.Of(web).Mirrors(all.Of(db).Reverse()) {
		t.Error("on loopback the group tells both directions apart")
	}
	if s := port.Of(web).String(); s != "tcp from cgroup /s/web from port 80" {
		t.Error(s)
	}
	if all.Of(web).Whole() || len(all.Of(web).Cgroups()) != 1 || len(all.Include) != 0 {
		t.Error("a group is no whole device")
	}
}

func TestCgroupSelector(t *testing.T) {
	for _, good := range []string{"/system.slice/pg.service", "/a", "pg.service", "pg"} {
		s := Selector{Device: "v0", Cgroup: good}
		if err := s.Validate(); err != nil || s.String() != "v0 cgroup "+good {
			t.Errorf("%s: %v", s, err)
		}
	}
	for name, s := range map[string]Selector{
		"the root":          {Device: "v0", Cgroup: "/"},
		"a way up":          {Device: "v0", Cgroup: "/a/../b"},
		"a relative path":   {Device: "v0", Cgroup: "a/b"},
		"white space":       {Device: "v0", Cgroup: "/a b"},
		"of ICMP":           {Device: "v0", Cgroup: "/a", Protocol: 1},
		"with control ones": {Device: "v0", Cgroup: "/a", Control: true},
	} {
		if err := s.Validate(); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}
