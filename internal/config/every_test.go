package config

import (
	"encoding"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/strictyaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// mistake is the form of every line of every error.
var mistake = regexp.MustCompile(`^((configuration )?\S*\d+:\d+|configuration): (file|[^ ].*): .+, want .+\n?$`)

// foreign are words of the language that this is written in.
var foreign = regexp.MustCompile(`(?i)unmarshal|struct|\bint\b|\bbool\b|\bGo\b|config\.[A-Z]|strconv|slice|nil`)

// bad are values that no key has, and values for some that look as if they could be right.
var bad = []string{"[]", "{}", "~", `""`, "[x]", "{x: y}", "|\n        x"}

var badFor = map[string][]string{
	"state_dir":               {"run", "../x", "/run//x", "/run/", "5", "true"},
	"socket.path":             {"run.sock", "/run/" + strings.Repeat("s", 110)},
	"socket.group":            {strings.Repeat("g", 300)},
	"socket.mode":             {"rw", "0o666", "0060", "0888", "1777", "-1"},
	"tcp.listen":              {"7070", "host:7070", ":70700", ":http", "192.0.2.1"},
	"tcp.certificate":         {"agent.pem"},
	"tcp.key":                 {"agent.key"},
	"tcp.client_ca":           {"ca.pem"},
	"tcp.reflection":          {"yes", "1", `"true"`, "True"},
	"ttl.default":             {"10", "10x", "0s", "-1s", "25h", "1e3s"},
	"ttl.max":                 {"10", "10x", "0s", "25h"},
	"limits.request_bytes":    {"1048576", "1MB/s", "1B", "1GiB", "1mib"},
	"limits.faults":           {"0", "-1", "4097", "1.5", "5s", `"5"`, "0x10", "010", "1_000", "99999999999999999999"},
	"limits.faults_per_owner": {"0", "4097", "1.5", "many"},
	"limits.labs":             {"0", "257", "1.5", "many"},
	"limits.probes_per_owner": {"0", "65", "1.5", "many"},
	"limits.probe_rate":       {"0", "100001", "1.5", "many"},
	"limits.probe_in_flight":  {"0", "100001", "1.5", "many"},
	"limits.followers":        {"0", "4097", "1.5", "many"},
	"limits.waiting":          {"0", "4097", "1.5", "many"},
	"allow":                   {"x", "5"},
	"allow[].users":           {"x", `[""]`, "[[x]]"},
	"allow[].groups":          {"x", `[""]`},
	"allow[].certificates":    {"x", `[""]`},
	"allow[].verbs":           {"list", "[fly]", "[5]"},
	"allow[].targets":         {"x", `["["]`, `["dev:"]`},
	"targets":                 {"x", "5"},
	"targets.web":             {"x", "5"},
	"targets.web.container":   {"a b", "-x"},
	"targets.web.pid":         {"-1", "x", "1.5", "010"},
	"targets.web.host":        {"0.0.0.0", "10.0.0.0/8", "fe80::1%eth0", "a b"},
	"targets.web.cgroup":      {"a", "/", "/a/../b"},
	"targets.web.unit":        {"a/b"},
	"targets.web.toxiproxy":   {"redis", "redis@", "a/b@x:1", "redis@https://x:1"},
	"targets.web.address_in":  {"x", "10.0.0.1", "10.0.0.1/8"},
	"targets.web.device":      {"a/b", "v0@blue"},
	"targets.web.netns":       {"../x", "pid:x", "/proc/self/ns/net"},
	"targets.web.protocol":    {"x", "256", "0"},
	"targets.web.port":        {"0", "70000", "x", "80-10", "1.5"},
	"audit.path":              {"audit.jsonl"},
	"audit.max_megabytes":     {"0", "1001", "10MB", "1.5"},
	"audit.keep":              {"-1", "101", "1.5"},
	"metrics.listen":          {"9090", "localhost:9090"},
	"traces.otlp_endpoint":    {"collector", "http://x/y", "x:0"},
	"traces.insecure":         {"yes"},
	"toxiproxy.allow":         {"x", "[localhost]", "[10.0.0.1/8]", "[run/x]", "[/run/../x]", "['']"},
	"profiles":                {"x", "5"},
	"repair":                  {"yes", "maybe", "1", "TRUE"},
	"keep":                    {"no", "0"},
}

// around is a file in which the value at a key is the only mistake, and the line and column of
// the key.
func around(key, value string) (text string, line, column int) {
	section, rest, below := strings.Cut(key, ".")
	if name, key, ok := strings.Cut(rest, "."); section == "targets" && below {
		if !ok {
			return "targets:\n  " + name + ": " + value, 2, 3
		}
		lines := []string{"targets:", "  " + name + ":"}
		if key == "protocol" || key == "port" {
			lines = append(lines, "    container: web")
		}
		lines = append(lines, "    "+key+": "+value)
		return strings.Join(lines, "\n"), len(lines), 5
	}
	switch {
	case !below && section != "allow[]":
		return "# x\n" + key + ": " + value, 2, 1
	case section == "allow[]":
		rule := []string{"users: [root]", "verbs: [list]"}
		if rest == "users" || rest == "verbs" {
			rule = []string{map[string]string{"users": "verbs: [list]", "verbs": "users: [root]"}[rest]}
		}
		rule = append(rule, rest+": "+value)
		return "allow:\n  - " + strings.Join(rule, "\n    "), len(rule) + 1, 5
	}
	lines := []string{section + ":"}
	for _, k := range map[string][]string{
		"tcp": {"listen: :7070", "certificate: /c", "key: /k", "client_ca: /a"}, "audit": {"path: /a"}, "traces": {"otlp_endpoint: x:1"},
	}[section] {
		if !strings.HasPrefix(k, rest+":") {
			lines = append(lines, "  "+k)
		}
	}
	lines = append(lines, "  "+rest+": "+value)
	return strings.Join(lines, "\n"), len(lines), 3
}

// every calls f for the path of each key that a file can have.
func every(t reflect.Type, parent string, f func(key string, t reflect.Type)) {
	for field := range t.Fields() {
		key, ft := fieldKey(parent, field), field.Type
		f(key, ft)
		if ft == reflect.TypeFor[strictyaml.Named[Target]]() {
			key, ft = key+".web", reflect.TypeFor[Target]()
			f(key, ft)
		} else if strings.HasPrefix(ft.Name(), "Named[") { // its names are the user's; its values have tests of their own
			continue
		}
		if _, text := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(ft)); text {
			continue
		}
		if ft.Kind() == reflect.Slice && !strings.HasPrefix(key, "targets.") && ft.Elem().Kind() == reflect.Struct {
			key, ft = key+"[]", ft.Elem()
		}
		if ft.Kind() == reflect.Struct {
			every(ft, key, f)
		}
	}
}

// fieldKey is the path of a field's key.
func fieldKey(parent string, f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return strings.TrimPrefix(parent+"."+name, ".")
}

// Each key refuses what it cannot mean, and says so in one form with its place.
func TestEveryKey(t *testing.T) {
	var got strings.Builder
	every(reflect.TypeFor[Config](), "", func(key string, typ reflect.Type) {
		values := append(badFor[key], bad...)
		inTargets := strings.HasPrefix(key, "targets.") // the forms of which stand beside the fields
		if typ.Kind() != reflect.Struct && (!inTargets && forms[key] == "" || len(badFor[key]) == 0) {
			t.Errorf("%s: no form or no bad value", key)
		}
		for _, value := range values {
			if key == "targets" && value == "{x: y}" {
				continue // that is wrong with x
			}
			if typ.Kind() == reflect.Slice && !inTargets && key != "targets" && value == "[x]" && key != "allow[].verbs" && key != "allow" {
				continue // a list of names
			}
			text, line, column := around(key, value)
			_, err := Parse([]byte(text))
			if err == nil {
				t.Errorf("%s: sound:\n%s", key, text)
				continue
			}
			fmt.Fprintf(&got, "%s: %.20q\n", key, value)
			for l := range strings.Lines(err.Error() + "\n") {
				got.WriteString("    " + l)
				if !mistake.MatchString(l) || foreign.MatchString(l) {
					t.Errorf("%s %q: not of the form: %s", key, value, l)
				}
			}
			var m *Mistake
			if !errors.As(err, &m) || m.Line != line && !strings.HasPrefix(value, "[") && !strings.HasPrefix(value, "{") || m.Column < column {
				t.Errorf("%s %q: %v, want it at %d:%d", key, value, err, line, column)
			}
		}
	})
	path := filepath.Join("testdata", "mistakes.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-golden +got):\n%s", diff)
	}
}
