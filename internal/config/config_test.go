package config

import (
	"errors"
	"fmt"
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
limits: {request_bytes: 64KiB, faults: 10, faults_per_owner: 5, labs: 1, probes_per_owner: 2, probe_rate: 500, probe_in_flight: 50, followers: 8, waiting: 3}
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
		Limits:   Limits{RequestBytes: 64 << 10, Faults: 10, FaultsPerOwner: 5, Labs: 1, ProbesPerOwner: 2, ProbeRate: 500, ProbeInFlight: 50, Followers: 8, Waiting: 3},
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

// What is wrong with a file is said with its place; that of each key is in TestEveryKey.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"stat_dir: /x":                                       `1:1: stat_dir: is an unknown key, want one of state_dir, socket, tcp, ttl,`,
		"repair: true\nsocket:\n  grup: x\n":                 `3:3: socket.grup: is an unknown key, want one of path, group, mode`,
		"allow:\n  - {user: [a]}":                            `2:6: allow[0].user: is an unknown key, want one of users, groups, certificates, verbs, targets`,
		"repair: true\nrepair: false":                        `2:1: repair: is there already, at 1:1, want it once`,
		"ttl: {default: 2h, max: 1h}":                        `1:7: ttl.default: "2h" is out of range, want a time from 1s to 1h`,
		"ttl:\n  max: 5m":                                    `1:1: ttl.default: "10m", its default, is out of range, want a time from 1s to 5m`,
		"state_dir: /run/../x":                               `1:1: state_dir: "/run/../x" is not valid, want an absolute path`,
		"tcp: {key: /k}":                                     "1:1: tcp.listen: is missing, want ADDRESS:PORT, such as 192.0.2.1:7070, or :7070 for every address, or the key tcp left out",
		"audit: {keep: 3}":                                   "1:1: audit.path: is missing, want an absolute path",
		"traces: {insecure: true}":                           "1:1: traces.otlp_endpoint: is missing, want HOST:PORT",
		"tcp: {}":                                            "1:1: tcp: is empty, want keys below it (listen, certificate, key, client_ca, reflection), or the key left out",
		"limits:\n  # faults: 5\n":                           "1:1: limits: is empty, want keys below it",
		"allow: []":                                          "1:1: allow: is empty, want a list of rules; to let root and the socket's group do everything leave the key out, and for root alone say: allow:",
		"repair: true\nallow:\n":                             "2:1: allow: is empty, want a list of rules",
		"allow: [{users: [a], verbs: [fly]}]":                `1:22: allow[0].verbs: "fly" is not valid, want apply`,
		"allow: [{verbs: [list]}]":                           "1:9: allow[0]: is not valid, want users, groups or certificates",
		"allow: [{users: [a], verbs: [list]}, x]":            `1:38: allow[1]: is "x" where a mapping stands, want a rule`,
		"allow: [{users: a, verbs: [list]}]":                 `1:10: allow[0].users: is "a" where a list stands, want a list of users`,
		"allow: [{users: [a, ~], verbs: [list]}]":            `1:21: allow[0].users[1]: is empty, want a list of users`,
		"a: &x 1\nb: *x":                                     "1:4: file: has an anchor, alias or merged key, want each value where it is used",
		"allow:\n- users: !0000\n  x":                        "2:10: file: has a tag, want none",
		"repair: true\n---\nrepair: false":                   "2:1: file: has several documents, want one",
		"%YAML 1.1\n---\nrepair: true":                       "1:1: file: has a directive, want keys",
		"repair: true\x00":                                   "1:13: file: has a NUL byte, want text",
		"socket: [":                                          "1:9: file: is not YAML: ",
		"repair: true\n\tkeep: true":                         "file: is not YAML: ",
		"just text":                                          `1:1: file: is "just text", want keys: state_dir,`,
		"[1, 2]":                                             "1:1: file: is a list, want keys: state_dir,",
		"? [repair]\n: true":                                 "2:1: file: is not YAML: ",
		"state_dir: /" + strings.Repeat("s", 100):            "1:1: state_dir: is too long for the socket in it, want at most 95 bytes, or socket.path",
		"socket: {path: /" + strings.Repeat("s", 120) + "}":  "1:10: socket.path",
		strings.Repeat("[", 4000):                            "1:1: file: is nested too deep, want at most 32 levels",
		strings.Repeat("[\n", 9000):                          "33:1: file: is nested too deep",
		strings.Repeat("- ", 2000):                           "1:1: file: is nested too deep",
		strings.Repeat("\n", 10_001):                         "10001:1: file: is too long, want at most 10000 lines",
		"socket: {group: " + strings.Repeat("g", 5000) + "}": "1:4097: file: has a line that is too long, want at most 4096 bytes in one",
		strings.Repeat("#", MaxSize+1):                       "file: is too large, want at most 1048576 bytes",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 3 {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// Everything that is wrong is told at once, in the order of the file, as far as one reads.
func TestAllMistakes(t *testing.T) {
	_, err := Parse([]byte("limits: {faults: 0,\n  labs: 1.5}\nrepair: yes"))
	if !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("%v is not ErrInvalid", err)
	}
	want := `1:10: limits.faults: "0" is out of range, want a number from 1 to 4096
2:3: limits.labs: "1.5" is not valid, want a number from 1 to 256
3:1: repair: "yes" is not valid, want true or false`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var field *qdisc.FieldError
	if !errors.As(err, &field) || field.Field != "limits.faults" {
		t.Errorf("%+v, want that of limits.faults", field)
	}
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "k%d: 1\n", i)
	}
	_, err = Parse([]byte(many.String()))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 21 || lines[20] != "21:1: file: has 80 mistakes more from here on, want those above mended first" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
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
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), "configuration "+path+":2:1: foo: is an unknown key") {
		t.Errorf("%v, want file, line and column", err)
	}
	if err := os.WriteFile(path, []byte("ttl: {default: 5m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || time.Duration(c.TTL.Default) != 5*time.Minute {
		t.Errorf("%+v, %v", c, err)
	}
}

// What only this host knows to be wrong has its place, too.
func TestExplain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "netemd.yaml")
	if err := os.WriteFile(path, []byte("allow:\n  - users: [root]\n    groups: [no-such-group]\n    verbs: [list]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = access.New(f.Allow)
	other := errors.New("something else")
	got := f.Explain(errors.Join(err, other))
	want := "configuration " + path + `:3:5: allow[0].groups: "no-such-group" is not valid, want a group of this host, or its number` + "\nsomething else"
	if got == nil || got.Error() != want || !errors.Is(got, other) || !errors.Is(got, qdisc.ErrInvalid) {
		t.Errorf("%v, want %s", got, want)
	}
	if got := f.Explain(other); !errors.Is(got, other) || got.Error() != other.Error() || f.Explain(nil) != nil {
		t.Error("what is no mistake was made one")
	}
	got = File{Config: Default()}.Explain(&qdisc.FieldError{Field: "audit.path", Value: "/x", Why: "is a folder", Want: "a file"})
	if want := `configuration: audit.path: "/x" is a folder, want a file`; got.Error() != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full)) // more are in testdata
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !mistake.MatchString(line) {
					t.Errorf("not of the form: %q", line)
				}
			}
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
