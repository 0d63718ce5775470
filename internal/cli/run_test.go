package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/report"
)

func TestHold(t *testing.T) {
	for _, c := range []struct {
		code int
		args []string
	}{
		{0, []string{"loss", "20%", "--target", "pg", "--", "true", "-1%", "--target", "x"}},
		{3, []string{"toxic", "down", "--target", "pg", "--", "false"}},
	} {
		w := world{agent: newFakeAgent(), code: c.code}
		if got := w.run(t.Context(), c.args...); got != c.code {
			t.Errorf("%v: exit code %d, want the command's %d\n%s", c.args, got, c.code, w.stderr.String())
		}
		at := len(c.args) - 1
		for c.args[at] != "--" {
			at--
		}
		if diff := cmp.Diff([][]string{append([]string{""}, c.args[at+1:]...)}, w.commands); diff != "" {
			t.Error(diff)
		}
		if w.stdout.String() != "the command's own output\n" {
			t.Errorf("standard output is not the command's alone: %q", w.stdout.String())
		}
		if len(w.agent.faults) != 0 || len(w.agent.cleared) != 1 {
			t.Errorf("left %v, cleared %v", w.agent.faults, w.agent.cleared)
		}
		if stream := c.args[0] == "toxic"; strings.Contains(w.stderr.String(), " seen") == stream {
			t.Errorf("a stream fault %v: told %q", stream, w.stderr.String())
		}
	}
}

// TestHoldOfALostFault: a command that succeeded beside no fault proves nothing, and
// one that failed keeps its own code.
func TestHoldOfALostFault(t *testing.T) {
	for _, c := range []struct{ command, want int }{{0, exitInconclusive}, {9, 9}} {
		w := world{agent: newFakeAgent(), code: c.command}
		w.agent.state = fault.Lost
		if got := w.run(t.Context(), "loss", "20%", "--target", "pg", "--", "x"); got != c.want {
			t.Errorf("the command's code %d: exit code %d, want %d", c.command, got, c.want)
		}
		if !strings.Contains(w.stderr.String(), "lost while the command ran") {
			t.Errorf("told %q", w.stderr.String())
		}
	}
}

// TestHoldIsBounded: a time to live that is asked for ends the fault beside a command
// that runs longer; without one it is renewed.
func TestHoldIsBounded(t *testing.T) {
	for _, c := range []struct {
		args     string
		runs     time.Duration
		command  int
		want     int
		renewals int
	}{
		{"loss 20% --target pg -- x", 35 * time.Second, 0, exitDone, 3},
		{"loss 20% --target pg --ttl 1m -- x", 35 * time.Second, 0, exitDone, 0},
		{"loss 20% --target pg --ttl 30s -- x", 35 * time.Second, 0, exitInconclusive, 0},
		{"loss 20% --target pg --ttl 30s -- x", 35 * time.Second, 9, 9, 0},
		{"toxic down --target pg --ttl 30s -- x", 35 * time.Second, 0, exitInconclusive, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := world{agent: newFakeAgent(), code: c.command}
			w.meanwhile = func() {
				time.Sleep(c.runs)
				a := w.agent
				a.mu.Lock()
				expired := a.renewals == 0 && a.faults[0].Expires.Before(noon.Add(c.runs))
				a.mu.Unlock()
				if expired {
					a.happen("expired", fault.Expired, "")
					a.ended = fault.Expired // as the agent does by itself
				}
			}
			got := w.run(t.Context(), strings.Fields(c.args)...)
			if got != c.want || w.agent.renewals != c.renewals || len(w.agent.faults) != 0 {
				t.Errorf("%s: exit code %d, want %d, %d renewals, want %d, left %v", c.args, got, c.want, w.agent.renewals, c.renewals, w.agent.faults)
			}
			if told := strings.Contains(w.stderr.String(), "f1 ended by itself after --ttl 30s"); told != (got != exitDone) {
				t.Errorf("%s: told %q", c.args, w.stderr.String())
			}
		})
	}
}

func TestHoldRefusedRunsNothing(t *testing.T) {
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "loss", "20%", "--target", "nope", "--", "true"); code != exitError || w.commands != nil {
		t.Errorf("exit code %d, ran %v", code, w.commands)
	}
}

// TestEmptyNames: an empty argument is no name and no command.
func TestEmptyNames(t *testing.T) {
	for _, args := range [][]string{
		{""}, {"toxic", ""}, {"help", ""}, {"lab", "exec", "client", "--", ""}, {"loss", "20%", "--target", "pg", "--", ""},
		{"clear", ""}, {"change", "", "--loss", "5%"}, {"show", ""}, {"renew", ""}, {"verify", ""}, {"stats", ""}, {"lab", "up", ""}, {"target", "resolve", ""},
		{"clear", "--target", ""}, {"clear", "--dev", "v0", "--netns", ""}, {"clear", "--dev", ""}, {"loss", "20%", "--dev", "v0", "--netns", ""},
		{"loss", "20%", "--target", ""}, {"probe", "pg", "--target", ""}, {"compare", "--target", ""}, {"lab", "exec", "--lab", "", "client", "--", "x"},
		{"apply", "--target", "pg", "--tc", " "}, {"delay", "1ms", "--jitter", "1ms", "--target", "pg", "--distribution-file", ""},
	} {
		w := world{agent: newFakeAgent()}
		if code := w.run(t.Context(), args...); code != exitUsage || w.stdout.Len() > 0 || w.commands != nil || len(w.agent.cleared) > 0 {
			t.Errorf("%q: exit code %d, ran %v, %q %q", args, code, w.commands, w.stdout.String(), w.stderr.String())
		}
	}
}

// TestInterrupted ends the context while a comparison holds its fault.
func TestInterrupted(t *testing.T) {
	w := world{agent: newFakeAgent()}
	ctx, cancel := context.WithCancel(t.Context())
	probes := 0
	w.agent.during = func() {
		if probes++; probes == 2 {
			cancel()
		}
	}
	if code := w.run(ctx, "compare", "--target", "pg"); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	if len(w.agent.faults) != 0 || len(w.agent.cleared) != 1 {
		t.Errorf("left %v, cleared %v", w.agent.faults, w.agent.cleared)
	}
	if !strings.HasSuffix(w.stderr.String(), "netemctl: interrupted\n") {
		t.Errorf("told %q", w.stderr.String())
	}
}

func TestWatch(t *testing.T) {
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "loss", "20%", "--target", "pg", "-o", "json"); code != 0 {
		t.Fatal(w.stderr.String())
	}
	for _, c := range []struct{ output, want string }{
		{"table", "12:00:01.500  applied   f1  loss 20% to pg, by uid 0 (root)\n"},
		{"jsonl", `{"number":1,"life":"bqk","time":"2026-03-01T12:00:01.5Z","monotonic_ns":1000000000,"event":"applied","owner":"uid 0 (root)","fault":{"id":"f1",`},
	} {
		w.stdout.Reset()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if code := w.run(ctx, "watch", "-o", c.output); code != exitInterrupted || !strings.HasPrefix(w.stdout.String(), c.want) {
			t.Errorf("%s: exit code %d, %q", c.output, code, w.stdout.String())
		}
	}
}

// full is a device without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestFullOutput: what cannot be written is no success.
func TestFullOutput(t *testing.T) {
	for _, line := range []string{"version", "version -o json", "list", "loss 1% --target pg", "loss 1% --target pg --dry-run", "help", "exit-codes", "completion bash", "watch", "--help"} {
		agent := newFakeAgent()
		if _, err := agent.Apply(t.Context(), fault.Spec{Target: "pg"}); err != nil {
			t.Fatal(err)
		}
		w := world{agent: agent, output: full{}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		code := w.run(ctx, strings.Fields(line)...)
		cancel()
		if code != exitError || !strings.Contains(w.stderr.String(), "no space left on device") {
			t.Errorf("%s: exit code %d, told %q", line, code, w.stderr.String())
		}
	}
}

// TestWatchOfAStoppedAgent: the end of a watch is no success.
func TestWatchOfAStoppedAgent(t *testing.T) {
	w := world{agent: newFakeAgent()}
	w.agent.err = fmt.Errorf("%w: /run/x", client.ErrStopped)
	if code := w.run(t.Context(), "watch"); code != exitUnreachable || !strings.HasPrefix(w.stderr.String(), "netemctl: agent unreachable: the agent stopped: /run/x\nhint: ") {
		t.Errorf("exit code %d, told %q", code, w.stderr.String())
	}
}

func TestColours(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		{true, nil, true},
		{false, nil, false},
		{true, map[string]string{"NO_COLOR": "1"}, false},
		{true, map[string]string{"TERM": "dumb"}, false},
	} {
		w := world{agent: newFakeAgent(), terminal: c.terminal, env: c.env}
		w.run(t.Context(), "loss", "20%", "--target", "pg")
		w.run(t.Context(), "list")
		if got := strings.Contains(w.stdout.String(), "\x1b["); got != c.want {
			t.Errorf("terminal %v, %v: coloured %v", c.terminal, c.env, got)
		}
	}
}

func TestTableAlignsColours(t *testing.T) {
	var plain, coloured strings.Builder
	for s, w := range map[style]*strings.Builder{{}: &plain, {on: true}: &coloured} {
		tab := table{head: []string{"A", "N", "B"}, right: map[int]bool{1: true}}
		tab.add(s.bold("x"), "10", s.good("µ"))
		tab.add("long one", s.bad("1"), "y")
		tab.write(w, s)
	}
	stripped := coloured.String()
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m"} {
		stripped = strings.ReplaceAll(stripped, code, "")
	}
	if diff := cmp.Diff(plain.String(), stripped); diff != "" {
		t.Error(diff)
	}
}

func TestCompletion(t *testing.T) {
	w := world{agent: newFakeAgent()}
	w.run(t.Context(), "lab", "up", "pg")
	w.run(t.Context(), "loss", "20%", "--target", "pg")
	for _, c := range []struct{ line, want string }{
		{"loss 20% --target |", "pg"},
		{"show |", "f1\tloss 20% to pg"},
		{"loss 20% --engine |", "auto\nnetem\nebpf"},
		{"delay 5ms --direction |", "to\nfrom\nboth\negress\ningress"},
		{"compare --direction |", "to\nfrom\nboth"},
		{"loss 1% --dev |", "lo\neth0"},
		{"loss 1% --netns blue --dev |", "lo\nv0"},
		{"clear --netns g|", "green"},
		{"partition --force |", "agent\nssh\ndefault-route"},
		{"rate 1mbit --offload |", "off"},
		{"apply --protocol i|", "icmp\nicmpv6"},
		{"verify |", "f1\tloss 20% to pg"},
		{"stats |", "f1\tloss 20% to pg"},
		{"delay 5ms --distribution n|", "normal"},
		{"list -o j|", "json\njsonl"},
		{"lab up p|", "pg\npg-replicas\npayment"},
		{"lab exec --lab |", "pg"},
		{"lab show |", "pg"},
		{"lab exec |", "client\nserver"},
		{"drop s|", "syn\tthe first packet of a TCP handshake\nsynack\tthe second packet of a TCP handshake"},
		{"hold d|", "data:1\tthe N-th data segment of a TCP connection"},
		{"drop syn --engine e|", "ebpf"},
		{"packets |", "f1\tloss 20% to pg"},
		{"toxic latency --stream |", "upstream\ndownstream"},
	} {
		w.stdout.Reset()
		args := strings.Split(strings.TrimSuffix(c.line, "|"), " ")
		w.run(t.Context(), append([]string{"__complete"}, args...)...)
		got, _, _ := strings.Cut(w.stdout.String(), "\n:")
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
	for line, want := range map[string]bool{
		"run |": true, "run ./mine.yaml |": true, "run --quick |": true, "catalogue |": true,
		"run ./mine.yaml -- |": false, "run ./mine.yaml -- go te|": false,
	} {
		w.stdout.Reset()
		w.run(t.Context(), append([]string{"__complete"}, strings.Split(strings.TrimSuffix(line, "|"), " ")...)...)
		if got := w.stdout.String(); strings.Contains(got, "pg/loss-tail\t") != want || !strings.HasSuffix(got, ":0\n") {
			t.Errorf("%s: %q", line, w.stdout.String())
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		w.stdout.Reset()
		if code := w.run(t.Context(), "completion", shell); code != 0 || !strings.Contains(w.stdout.String(), "netemctl") {
			t.Errorf("completion %s: exit code %d", shell, code)
		}
	}
}

func TestCompareOut(t *testing.T) {
	dir := t.TempDir()
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "compare", "--target", "pg", "-n", "40", "-o", "json", "--out", dir); code != 0 {
		t.Fatal(w.stderr.String())
	}
	b, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.stdout.String(), string(b)); diff != "" {
		t.Errorf("standard output and result.json differ:\n%s", diff)
	}
	var doc struct {
		Kind string
		Data struct{ Rows []struct{ Layer string } }
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Kind != "compare" || len(doc.Data.Rows) != 4 || doc.Data.Rows[1].Layer != "packet" {
		t.Errorf("kind %q, rows %v", doc.Kind, doc.Data.Rows)
	}
	for _, name := range []string{"report.html", "samples.jsonl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestOutIsTriedFirst: a folder that cannot be is known before anything is done.
func TestOutIsTriedFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"probe pg", "compare"} {
		w := world{agent: newFakeAgent()}
		w.agent.during = func() { t.Errorf("%s measured", command) }
		args := append(strings.Fields(command), "--target", "pg", "--out", filepath.Join(file, "dir"))
		if code := w.run(t.Context(), args...); code != exitUsage || w.stdout.Len() > 0 || !strings.Contains(w.stderr.String(), "--out: ") || !strings.Contains(w.stderr.String(), "not a directory") {
			t.Errorf("%s: exit code %d, %q", command, code, w.stderr.String())
		}
	}
}

// TestOutKeepsTheLast: what an earlier run wrote is there until another one measures.
func TestOutKeepsTheLast(t *testing.T) {
	dir := t.TempDir()
	files := func() (names []string) {
		for _, name := range []string{"result.json", "samples.jsonl", "metrics.txt", "otlp-traces.jsonl", "otlp-metrics.jsonl"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(b) > 0 {
				names = append(names, name)
			}
		}
		return names
	}
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "probe", "pg", "--target", "pg", "-n", "10", "--out", dir); code != 0 {
		t.Fatalf("exit code %d, %s", code, w.stderr.String())
	}
	if strings.Contains(w.stderr.String(), "replaces") {
		t.Errorf("of an empty folder it said: %s", w.stderr.String())
	}
	all := files()
	if len(all) != 5 {
		t.Fatalf("the run left %q", all)
	}
	for name, ends := range map[string]struct {
		ctx  func() context.Context
		dial error
		args []string
		want int
	}{
		"no agent": {dial: unreachable, want: exitUnreachable},
		"refused":  {want: exitInterrupted, ctx: func() context.Context { ctx, cancel := context.WithCancel(t.Context()); cancel(); return ctx }},
		"usage":    {want: exitUsage, args: []string{"--rate", "1/s", "--pace", "1s"}},
	} {
		w := world{agent: newFakeAgent(), dialErr: ends.dial}
		ctx := t.Context()
		if ends.ctx != nil {
			ctx = ends.ctx()
		}
		code := w.run(ctx, append([]string{"probe", "pg", "--target", "pg", "-n", "10", "--out", dir}, ends.args...)...)
		if code != ends.want {
			t.Errorf("%s: exit code %d, %s", name, code, w.stderr.String())
		}
		if got := files(); !slices.Equal(got, all) {
			t.Errorf("%s: it left %q of %q", name, got, all)
		}
	}
}

// TestOutLost: a result that can no longer be written is still told.
func TestOutLost(t *testing.T) {
	for command, want := range map[string]string{"probe pg": "direct ", "compare": "packet "} {
		dir := filepath.Join(t.TempDir(), "out")
		w := world{agent: newFakeAgent()}
		w.agent.during = func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(dir, nil, 0o644); err != nil {
				t.Error(err)
			}
		}
		code := w.run(t.Context(), append(strings.Fields(command), "--target", "pg", "-n", "10", "--out", dir)...)
		if code != exitError || !strings.Contains(w.stdout.String(), want) || !strings.Contains(w.stderr.String(), "netemctl: report: ") {
			t.Errorf("%s: exit code %d, %q, %q", command, code, w.stdout.String(), w.stderr.String())
		}
	}
}

func TestVersion(t *testing.T) {
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "version", "-o", "json"); code != 0 || !strings.Contains(w.stdout.String(), `"kernel": "6.18.5"`) {
		t.Errorf("exit code %d: %s", code, w.stdout.String())
	}
	w = world{dialErr: unreachable}
	if code := w.run(t.Context(), "version", "-o", "json"); code != 0 || !strings.Contains(w.stdout.String(), `"agent": null`) {
		t.Errorf("without an agent: exit code %d: %s", code, w.stdout.String())
	}
}

// TestApplyInterruptedUndoes ends the context before the agent has answered.
func TestApplyInterruptedUndoes(t *testing.T) {
	w := world{agent: newFakeAgent()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := Run(ctx, Env{
		Args: []string{"loss", "20%", "--target", "pg"}, Stdout: &w.stdout, Stderr: &w.stderr,
		Getenv: func(string) string { return "" }, SSHConnection: func() string { return "" },
		Dial: func(client.Endpoint) (Agent, error) { return cancelsApply{w.agent, cancel}, nil },
	})
	if code != exitInterrupted || len(w.agent.faults) != 0 {
		t.Errorf("exit code %d, left %v", code, w.agent.faults)
	}
}

type cancelsApply struct {
	*fakeAgent
	cancel func()
}

func (c cancelsApply) Apply(ctx context.Context, s fault.Spec) (fault.Fault, error) {
	c.cancel()
	return c.fakeAgent.Apply(ctx, s)
}

// TestReplaced: a run whose folder has another's result says that this one will be there
// instead.
func TestReplaced(t *testing.T) {
	for _, command := range []string{"probe pg", "compare"} {
		dir := t.TempDir()
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
		name := filepath.Join(dir, report.ResultFile)
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chtimes(name, at, at)); err != nil {
			t.Fatal(err)
		}
		w := world{agent: newFakeAgent()}
		w.run(t.Context(), append(strings.Fields(command), "--target", "pg", "-n", "10", "--out", dir)...)
		if want := "netemctl: this run replaces the result of " + at.Format(time.RFC3339) + " in " + dir + "\n"; strings.Count(w.stderr.String(), want) != 1 {
			t.Errorf("%s: %q, want %q in it once", command, w.stderr.String(), want)
		}
	}
}
