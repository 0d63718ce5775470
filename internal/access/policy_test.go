package access

import (
	"errors"
	"io/fs"
	"os/user"
	"strings"
	"testing"

	"netemd/internal/fault"
	"netemd/qdisc"
)

func policy(t *testing.T, rules ...Rule) *Policy {
	t.Helper()
	p, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAllow(t *testing.T) {
	var (
		root    = Peer{Owner: "uid 0 (root)"}
		bob     = Peer{UID: 1001, GIDs: []uint32{1001, 44}, Owner: "uid 1001"}
		eve     = Peer{UID: 1002, GIDs: []uint32{1002}, Owner: "uid 1002"}
		ci      = Peer{Certificate: true, CommonName: "ci", URIs: []string{"spiffe://x/ci"}, Owner: "certificate CN ci"}
		rogue   = Peer{Certificate: true, CommonName: "other", Owner: "certificate CN other"}
		posing  = Peer{Certificate: true, CommonName: "spiffe://x/ci", URIs: []string{"spiffe://x/intern"}, Owner: "certificate CN spiffe://x/ci"}
		posing2 = Peer{Certificate: true, URIs: []string{"tester"}, Owner: "certificate URI tester"}
		noRules = policy(t)
		rules   = policy(t,
			Rule{Users: []string{"1001"}, Verbs: []Verb{Apply, Clear}, Targets: []string{"pg*", "dev:v*@blue"}},
			Rule{Groups: []string{"44"}, Verbs: []Verb{List, Watch}},
			Rule{Certificates: []string{"spiffe://x/ci"}, Verbs: []Verb{All}, Targets: []string{"pg"}},
			Rule{Certificates: []string{"tester"}, Verbs: []Verb{List}},
			Rule{Users: []string{"1003"}, Verbs: []Verb{Apply}, Targets: []string{"dev:v*"}},
			Rule{Users: []string{"1004"}, Verbs: []Verb{Apply}, Targets: []string{"dev:*@*"}},
			Rule{Users: []string{"1005"}, Verbs: []Verb{Apply}, Targets: []string{"dev:v?@b*"}},
		)
		own, all, some = Peer{UID: 1003}, Peer{UID: 1004}, Peer{UID: 1005}
	)
	for _, tt := range []struct {
		name   string
		p      *Policy
		peer   Peer
		verb   Verb
		target string
		want   bool
	}{
		{"no rules, unix", noRules, eve, Apply, "pg", true},
		{"no rules, root", noRules, root, Lab, "pg", true},
		{"no rules, certificate", noRules, ci, List, "", false},
		{"root", rules, root, Apply, "dev:eth0", true},
		{"certificate with number 0 is not root", rules, rogue, List, "", false},
		{"user, name", rules, bob, Apply, "pg2", true},
		{"user, other name", rules, bob, Apply, "redis", false},
		{"user, any", rules, bob, Apply, "", true},
		{"user, device", rules, bob, Clear, "dev:v0@blue", true},
		{"user, device of another namespace", rules, bob, Clear, "dev:v0", false},
		{"a pattern of names has no devices", rules, bob, Clear, "dev:pg1", false},
		{"user, other verb", rules, bob, Change, "pg", false},
		{"supplementary group", rules, bob, Watch, "", true},
		{"without a rule", rules, eve, List, "", false},
		{"certificate by URI", rules, ci, Probe, "pg", true},
		{"certificate, other target", rules, ci, Probe, "pg2", false},
		{"certificate, read", rules, ci, List, "", true},
		{"other certificate", rules, rogue, Apply, "pg", false},
		{"a common name that looks like a URI", rules, posing, Probe, "pg", false},
		{"a URI that looks like a common name", rules, posing2, List, "", false},
		{"what is no longer known", rules, all, Apply, Unknown, false},
		{"exec is not among all", policy(t, Rule{Certificates: []string{"ci"}, Verbs: []Verb{All}, Targets: []string{"*"}}), Peer{Certificate: true, CommonName: "ci"}, Exec, "shop", false},
		{"exec by name", policy(t, Rule{Certificates: []string{"ci"}, Verbs: []Verb{All, Exec}, Targets: []string{"shop"}}), Peer{Certificate: true, CommonName: "ci"}, Exec, "shop", true},
		{"exec elsewhere", policy(t, Rule{Certificates: []string{"ci"}, Verbs: []Verb{Exec}, Targets: []string{"shop"}}), Peer{Certificate: true, CommonName: "ci"}, Exec, "other", false},
		{"what is no longer known, everything", policy(t, Rule{Users: []string{"*"}, Verbs: []Verb{All}, Targets: []string{"*"}}), bob, Packets, Unknown, true},
		{"what is no longer known, every name", policy(t, Rule{Users: []string{"*"}, Verbs: []Verb{All}, Targets: []string{"[a-z]*"}}), bob, Packets, Unknown, false},
		{"own namespace", rules, own, Apply, "dev:v0", true},
		{"own namespace, a pattern reaches no other", rules, own, Apply, "dev:v0@blue", false},
		{"own namespace, another begins alike", rules, own, Apply, "dev:veth0@netem-pg-wire", false},
		{"all namespaces", rules, all, Apply, "dev:v0@blue", true},
		{"all namespaces, the own one", rules, all, Apply, "dev:v0", true},
		{"all devices, no name", rules, all, Apply, "pg", false},
		{"some namespaces", rules, some, Apply, "dev:v0@blue", true},
		{"some namespaces, another", rules, some, Apply, "dev:v0@red", false},
		{"some namespaces, not the own one", rules, some, Apply, "dev:v0", false},
		{"some namespaces, another device", rules, some, Apply, "dev:v10@blue", false},
	} {
		err := tt.p.Allow(tt.peer, tt.verb, tt.target)
		if (err == nil) != tt.want {
			t.Errorf("%s: %v, want allowed %t", tt.name, err, tt.want)
		}
		if err != nil && (!errors.Is(err, fault.ErrDenied) || !errors.Is(err, fs.ErrPermission) || fault.HintOf(err) == "") {
			t.Errorf("%s: %v with hint %q, want a denied one with a hint", tt.name, err, fault.HintOf(err))
		}
	}
}

// Where everybody can open the socket, that alone gives nothing.
func TestMembers(t *testing.T) {
	member, other := Peer{UID: 7, GIDs: []uint32{7, 44}}, Peer{UID: 8, GIDs: []uint32{8}}
	for name, p := range map[string]*Policy{"a group": policy(t).Members(Group{"netem", 44, true}), "no group": policy(t).Members(Group{Name: "netem"})} {
		in := name == "a group"
		if p.Known(member) != in || p.Unrestricted(member) != in || (p.Allow(member, Apply, "pg") == nil) != in {
			t.Errorf("%s: a member may do something: %t, want %t", name, p.Known(member), in)
		}
		want := map[string]string{"a group": "it is not in the group netem", "no group": "this host has no group netem"}[name]
		if err := p.Allow(other, List, ""); p.Known(other) || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(fault.HintOf(err), "usermod -aG netem ") {
			t.Errorf("%s: another user: %v, hint %q, want %q", name, err, fault.HintOf(err), want)
		}
		if !p.Unrestricted(Peer{}) {
			t.Errorf("%s: root may not do all", name)
		}
	}
	p := policy(t, Rule{Users: []string{"8"}, Verbs: []Verb{List}}).Members(Group{"netem", 44, true})
	if p.Known(member) || !p.Known(other) {
		t.Error("with rules the group alone gives something, or a rule nothing")
	}
}

// Who is refused is told what he may do, and what rule would be needed.
func TestDenialExplains(t *testing.T) {
	p := policy(t, Rule{Users: []string{"*"}, Verbs: []Verb{List}}, Rule{Users: []string{"7"}, Verbs: []Verb{Apply}, Targets: []string{"pg"}})
	err := p.Allow(Peer{UID: 7, Owner: "uid 7"}, Apply, "dev:eth0")
	const want = "denied: uid 7 may not apply on dev:eth0: allow[0] gives verbs list; allow[1] gives verbs apply; targets pg"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if hint := fault.HintOf(err); !strings.HasSuffix(hint, `- {users: ["7"], verbs: [apply], targets: ["dev:eth0"]}`) {
		t.Errorf("hint %q", hint)
	}
	if hint := fault.HintOf(p.Allow(Peer{UID: 7, Owner: "uid 7"}, Packets, Unknown)); !strings.HasSuffix(hint, `verbs: [packets], targets: ["*"]}`) {
		t.Errorf("of what is no longer known: hint %q", hint)
	}
	if err := policy(t).Allow(Peer{Certificate: true, CommonName: "ci", Owner: "certificate CN ci"}, List, ""); err == nil ||
		!strings.HasSuffix(fault.HintOf(err), `- {certificates: ["ci"], verbs: [list]}`) || !strings.Contains(err.Error(), "no rule") {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}

func TestNames(t *testing.T) {
	me, err := user.LookupId("0")
	if err != nil {
		t.Skip("no user 0 here")
	}
	p := policy(t, Rule{Users: []string{me.Username}, Verbs: []Verb{List}})
	if got := p.rules[0].users; len(got) != 1 || got[0] != 0 {
		t.Errorf("user %s has numbers %v", me.Username, got)
	}
	_, err = New([]Rule{{Users: []string{"no such user"}, Groups: []string{"no such group"}, Verbs: []Verb{List}}})
	for _, want := range []string{`allow[0].users "no such user": want a user of this host`, `allow[0].groups "no such group": want a group of this host`} {
		if !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Rule{Users: []string{"1"}, Verbs: []Verb{Apply}, Targets: []string{"*"}}
	for name, tt := range map[string]struct {
		rule Rule
		want string
	}{
		"nobody":             {Rule{Verbs: []Verb{List}}, "allow[1]: want users, groups or certificates"},
		"nothing":            {Rule{Users: []string{"1"}}, "allow[1].verbs: want at least one of apply"},
		"unknown verb":       {Rule{Users: []string{"1"}, Verbs: []Verb{"delete"}}, `allow[1].verbs "delete": want apply`},
		"no targets":         {Rule{Users: []string{"1"}, Verbs: []Verb{List, Apply}}, "allow[1].targets: want at least one target"},
		"broken pattern":     {Rule{Users: []string{"1"}, Verbs: []Verb{Apply}, Targets: []string{"[a"}}, `allow[1].targets "[a": want a pattern`},
		"no device":          {Rule{Users: []string{"1"}, Verbs: []Verb{Apply}, Targets: []string{"dev:"}}, `allow[1].targets "dev:"`},
		"no namespace":       {Rule{Users: []string{"1"}, Verbs: []Verb{Apply}, Targets: []string{"dev:v0@"}}, `allow[1].targets "dev:v0@"`},
		"no device's name":   {Rule{Users: []string{"1"}, Verbs: []Verb{Apply}, Targets: []string{"dev:@blue"}}, `allow[1].targets "dev:@blue"`},
		"a broken namespace": {Rule{Users: []string{"1"}, Verbs: []Verb{Apply}, Targets: []string{"dev:v0@[b"}}, `allow[1].targets "dev:v0@[b": want a pattern`},
		"a NUL":              {Rule{Certificates: []string{"a\x00"}, Verbs: []Verb{List}}, "allow[1].certificates"},
		"an endless list":    {Rule{Users: make([]string, 300), Verbs: []Verb{List}}, "allow[1].users: want at most 256, not 300"},
		"list needs nothing": {Rule{Groups: []string{"0"}, Verbs: []Verb{List, Watch}}, ""},
	} {
		err := Validate([]Rule{good, tt.rule})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (!errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if err := Validate(make([]Rule, MaxRules+1)); err == nil || !strings.Contains(err.Error(), "at most 256 rules, not 257") {
		t.Errorf("too many rules: %v", err)
	}
}
