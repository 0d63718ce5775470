package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/access"
	"netemd/qdisc"
)

const full = `
state_dir: /run/other
socket: {path: /run/other.sock, group: wheel, mode: 0600}
tcp:
  listen: 192.0.2.1:7070
  certificate: /etc/netemd/agent.pem
  key: /etc/netemd/agent.key
  client_ca: /etc/netemd/ca.pem
  reflection: true
ttl: {default: 1m, max: 1h}
limits: {request_bytes: 64KiB, faults: 10, faults_per_owner: 5, labs: 1, probes_per_owner: 2, followers: 8, waiting: 3}
allow:
  - {users: [alice, "1001"], verbs: [apply, clear], targets: ["pg*"]}
  - {certificates: [ci], verbs: ["*"], targets: ["dev:v0@blue"]}
audit: {path: /var/log/netemd/audit.jsonl, max_megabytes: 1, keep: 2}
metrics: {listen: ":9090"}
traces: {otlp_endpoint: "collector:4317", insecure: true}
repair: true
keep: true
`

func TestParse(t *testing.T) {
	got, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		StateDir: "/run/other",
		Socket:   Socket{Path: "/run/other.sock", Group: "wheel", Mode: 0o600},
		TCP:      TCP{Listen: "192.0.2.1:7070", Certificate: "/etc/netemd/agent.pem", Key: "/etc/netemd/agent.key", ClientCA: "/etc/netemd/ca.pem", Reflection: true},
		TTL:      TTL{Default: Duration(time.Minute), Max: Duration(time.Hour)},
		Limits:   Limits{RequestBytes: 64 << 10, Faults: 10, FaultsPerOwner: 5, Labs: 1, ProbesPerOwner: 2, Followers: 8, Waiting: 3},
		Allow: []access.Rule{
			{Users: []string{"alice", "1001"}, Verbs: []access.Verb{access.Apply, access.Clear}, Targets: []string{"pg*"}},
			{Certificates: []string{"ci"}, Verbs: []access.Verb{access.All}, Targets: []string{"dev:v0@blue"}},
		},
		Audit:   Audit{Path: "/var/log/netemd/audit.jsonl", MaxMegabytes: 1, Keep: 2},
		Metrics: Metrics{Listen: ":9090"}, Traces: Traces{OTLPEndpoint: "collector:4317", Insecure: true},
		Repair: true, Keep: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "{}"} {
		if got, err := Parse([]byte(text)); err != nil || cmp.Diff(Default(), got) != "" {
			t.Errorf("%q: %+v, %v, want the default", text, got, err)
		}
	}
	if err := Default().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
}

// What is written is read back as the same.
func TestYAML(t *testing.T) {
	all, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Config{Default(), all} {
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(text)
		if diff := cmp.Diff(c, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s\nof:\n%s", err, diff, text)
		}
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"stat_dir: /x":                                       `line 1: unknown key "stat_dir", known: state_dir, socket, tcp, ttl,`,
		"repair: true\nsocket:\n  grup: x\n":                 `line 3: unknown key "socket.grup", known: path, group, mode`,
		"allow:\n  - {user: [a]}":                            `line 2: unknown key "allow[0].user", known: users, groups, certificates, verbs, targets`,
		"repair: true\nrepair: false":                        `line 2: mapping key "repair" already defined`,
		"ttl: {max: 60}":                                     `line 1: ttl.max "60": want a duration`,
		"limits:\n  request_bytes: 1048576":                  `line 2: limits.request_bytes "1048576": want`,
		"ttl: {default: [1m]}":                               "line 1: ttl.default",
		"socket: {mode: rw}":                                 `line 1: socket.mode "rw": want permissions in octal`,
		"socket: {mode: 0o660}":                              "socket.mode",
		"socket: {mode: \"0060\"}":                           `socket.mode "0060": want permissions in octal by which its owner`,
		"repair: maybe":                                      "line 1: ",
		"limits: {faults: -1}":                               `limits.faults "-1": want a number from 1 to 4096`,
		"limits: {faults: 5s}":                               "line 1: ",
		"ttl: {default: 2h, max: 1h}":                        `ttl.default "2h": want a time from 1s to 1h`,
		"ttl: {max: 25h}":                                    `ttl.max "25h": want a time from 1s to 24h`,
		"state_dir: ../x":                                    `state_dir "../x": want an absolute path`,
		"state_dir: /run/../x":                               `state_dir "/run/../x": want an absolute path`,
		"state_dir: \"\"":                                    "state_dir: want an absolute path",
		"tcp: {listen: \"0.0.0.0:7070\"}":                    "tcp.certificate: want a PEM file",
		"tcp: {key: /k}":                                     "tcp.listen: want ADDRESS:PORT",
		"tcp: {listen: \"host:7070\"}":                       `tcp.listen "host:7070": want ADDRESS:PORT`,
		"metrics: {listen: \"9090\"}":                        `metrics.listen "9090": want ADDRESS:PORT`,
		"traces: {otlp_endpoint: http://x/y}":                `traces.otlp_endpoint "http://x/y": want HOST:PORT`,
		"allow: [{users: [a], verbs: [fly]}]":                `allow[0].verbs "fly": want apply`,
		"allow: [{verbs: [list]}]":                           "allow[0]: want users, groups or certificates",
		"a: &x 1\nb: *x":                                     "line 1: want no anchors",
		"allow:\n- users: !0000\n  x":                        "line 2: want no tags",
		"repair: true\n---\nrepair: false":                   "several documents",
		"repair: true\x00":                                   "line 1: a NUL byte",
		"socket: [":                                          "line 1: ",
		"just text":                                          "line 1: ",
		"[1, 2]":                                             "line 1: ",
		"audit: {max_megabytes: 0}":                          `audit.max_megabytes "0": want a number from 1 to 1000`,
		"socket: {path: /" + strings.Repeat("s", 120) + "}":  "socket.path",
		strings.Repeat("[", 4000):                            "line 1: nested more than 32 deep",
		strings.Repeat("[\n", 9000):                          "line 33: nested more than 32 deep",
		strings.Repeat("- ", 2000):                           "line 1: nested more than 32 deep",
		strings.Repeat("\n", 10_001):                         "more than 10000 lines",
		"socket: {group: " + strings.Repeat("g", 5000) + "}": "line 1: longer than 4096 bytes",
		strings.Repeat("#", MaxSize+1):                       "larger than 1048576 bytes",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 3 {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	_, err := Parse([]byte("limits: {faults: 0, labs: 0}"))
	if !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "limits.faults") || !strings.Contains(err.Error(), "limits.labs") {
		t.Errorf("%v, want both fields", err)
	}
}

// Many rules in one line are no depth.
func TestRulesInOneLine(t *testing.T) {
	text := "allow: [" + strings.Repeat("{users: [a], verbs: [list]}, ", 60) + "]"
	if c, err := Parse([]byte(text)); err != nil || len(c.Allow) != 60 {
		t.Errorf("%d rules, %v, want 60", len(c.Allow), err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "netemd.yaml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file that was named: %v", err)
	}
	if err := os.WriteFile(path, []byte("ttl: {default: 5m}\nfoo: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), "configuration "+path+": line 2: unknown key") {
		t.Errorf("%v, want file and line", err)
	}
	if err := os.WriteFile(path, []byte("ttl: {default: 5m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || time.Duration(c.TTL.Default) != 5*time.Minute {
		t.Errorf("%+v, %v", c, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full)) // more are in testdata
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		again, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(again)
		if diff := cmp.Diff(c, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
