package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"netemd/internal/report"
)

const tailPlan = "testdata/tail-plan.yaml"

// filesOf are the files of a folder, with their texts.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir+"/")] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func same(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was changed", name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s is new", name)
		}
	}
}

// TestReportAgain: report says what run said, with the same exit code, and writes the same page.
func TestReportAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	ran := world{agent: newFakeAgent()}
	code := ran.run(t.Context(), "run", tailPlan, "--out", dir)
	written := filesOf(t, dir)
	for _, name := range []string{"result.json", "samples.jsonl", "events.jsonl", "environment.json", "plan.yaml", "junit.xml", "report.html", "otlp-traces.jsonl"} {
		if written[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	for _, output := range []string{"table", "json"} {
		if output == "json" {
			again := world{agent: newFakeAgent()}
			if got := again.run(t.Context(), "run", tailPlan, "-o", "json"); got != code {
				t.Errorf("exit code %d, then %d", code, got)
			}
			ran = again
		}
		w := world{dialErr: os.ErrPermission} // no agent is asked
		if got := w.run(t.Context(), "report", dir, "-o", output); got != code {
			t.Errorf("exit code %d, run's was %d\n%s", got, code, w.stderr.String())
		}
		if w.stdout.String() != ran.stdout.String() {
			t.Errorf("run said\n%s\nand report\n%s", ran.stdout.String(), w.stdout.String())
		}
		same(t, written, filesOf(t, dir))
	}
}

// TestReportUnended: the folder of a run that was killed is inconclusive, its conditions are
// judged by what there is, and who changes the plan is told.
func TestReportUnended(t *testing.T) {
	dir := t.TempDir()
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "run", tailPlan, "--out", dir); code != exitFailed {
		t.Fatalf("exit code %d\n%s%s", code, w.stdout.String(), w.stderr.String())
	}
	file := filepath.Join(dir, report.ResultFile)
	runs, err := report.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	unended := unended(runs[0].Experiment)
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.WriteJSON(f, "run", report.Experiments{Experiments: []report.Experiment{unended}}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w = world{}
	if code := w.run(t.Context(), "report", dir); code != exitInconclusive {
		t.Errorf("exit code %d\n%s", code, w.stderr.String())
	}
	for _, want := range []string{": inconclusive\n", "passed ", "the run did not end"} {
		if !strings.Contains(w.stdout.String(), want) {
			t.Errorf("%q is not in\n%s", want, w.stdout.String())
		}
	}
	if err := os.WriteFile(filepath.Join(dir, report.PlanFile), []byte("experiment: other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = world{}
	if code := w.run(t.Context(), "report", dir); code != exitInconclusive || !strings.Contains(w.stderr.String(), "plan.yaml was changed after the run") {
		t.Errorf("exit code %d, told %s", code, w.stderr.String())
	}
}

// unended is an experiment as it was before its end.
func unended(e report.Experiment) report.Experiment {
	e.Verdict, e.Reason = "inconclusive", report.NotEnded
	var zero report.Experiment
	e.Ended, e.KPIs, e.Contrasts = zero.Ended, nil, nil
	return e
}

// TestReportSeveral: several experiments have an index, which is written again, too.
func TestReportSeveral(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "other.yaml")
	text, err := os.ReadFile(tailPlan)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(other, []byte("experiment: deep/other\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := world{agent: newFakeAgent()}
	code := ran.run(t.Context(), "run", tailPlan, other, "--out", dir)
	if code != exitFailed {
		t.Fatalf("exit code %d\n%s", code, ran.stderr.String())
	}
	written := filesOf(t, dir)
	for _, want := range []string{`<a href="deep/other/report.html">deep/other</a>`, "2 experiments: 0 passed, 2 failed, 0 inconclusive"} {
		if !strings.Contains(written["index.html"], want) {
			t.Errorf("no %q in the index", want)
		}
	}
	if written["deep/other/report.html"] == "" {
		t.Error("the page that the index names is not there")
	}
	w := world{}
	if got := w.run(t.Context(), "report", dir); got != code || w.stdout.String() != ran.stdout.String() {
		t.Errorf("exit code %d\n%s\nrun said\n%s", got, w.stdout.String(), ran.stdout.String())
	}
	same(t, written, filesOf(t, dir))

	// The same experiment twice has one folder.
	w = world{agent: newFakeAgent()}
	if got := w.run(t.Context(), "run", tailPlan, tailPlan, "--out", filepath.Join(dir, "twice")); got != exitUsage || w.agent.next != 0 {
		t.Errorf("exit code %d, %d faults", got, w.agent.next)
	}
}

// TestReportTwo: the same run twice has no change; one that made a fault slower has.
func TestReportTwo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		w := world{agent: newFakeAgent()}
		if code := w.run(t.Context(), "run", tailPlan, "--out", filepath.Join(dir, name)); code != exitFailed {
			t.Fatalf("exit code %d\n%s", code, w.stderr.String())
		}
	}
	before := filesOf(t, dir)
	w := world{}
	if code := w.run(t.Context(), "report", filepath.Join(dir, "a"), filepath.Join(dir, "b")); code != exitDone || !strings.Contains(w.stdout.String(), " numbers changed beyond noise, 0 of ") ||
		!strings.Contains(w.stdout.String(), "\n0 of ") {
		t.Errorf("exit code %d\n%s%s", code, w.stdout.String(), w.stderr.String())
	}
	same(t, before, filesOf(t, dir))
	w = world{}
	if code := w.run(t.Context(), "report", filepath.Join(dir, "a"), filepath.Join(dir, "b"), "-o", "json"); code != exitDone || !strings.Contains(w.stdout.String(), `"kind": "report_changes"`) {
		t.Errorf("exit code %d\n%s", code, w.stdout.String())
	}
}

// TestReportOfNothing: what is no folder of a run is refused.
func TestReportOfNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	probed := filepath.Join(dir, "probed")
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "probe", "pg", "--target", "pg", "--out", probed); code != exitDone {
		t.Fatalf("exit code %d\n%s", code, w.stderr.String())
	}
	for arg, want := range map[string]string{
		dir: "there is no result.json in it", filepath.Join(dir, "none"): "there is no result.json in it", file: "not a directory", probed: `it is of "probe"`,
	} {
		w := world{}
		if code := w.run(t.Context(), "report", arg); code == exitDone || w.stdout.Len() > 0 || !strings.Contains(w.stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s%s", arg, code, w.stdout.String(), w.stderr.String())
		}
	}
}

// TestRunOut: a folder that is used, and what is none, are refused before anything is made; --force
// takes away the run that is in it, and nothing else.
func TestRunOut(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "file"), "mine")
	write(filepath.Join(dir, "used", "note.txt"), "mine")
	write(filepath.Join(dir, "run", "note.txt"), "mine")
	write(filepath.Join(dir, "run", "result.json"), "{}")
	write(filepath.Join(dir, "run", "command", "old.log"), "old")
	before := filesOf(t, dir)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"file"}, "--out"}, {[]string{"file/below/it"}, "not a directory"}, {[]string{"used"}, "want a folder that is empty, or not there yet\nhint: name another folder, or take the run away that is in it: --force"},
		{[]string{"run"}, "--force"}, {[]string{"used", "--force"}, "there is no result.json in it"}, {[]string{"file", "--force"}, "--out"},
	} {
		w := world{agent: newFakeAgent()}
		args := append([]string{"run", tailPlan, "--out", filepath.Join(dir, c.args[0])}, c.args[1:]...)
		if code := w.run(t.Context(), args...); code != exitUsage || !strings.Contains(w.stderr.String(), c.want) || w.agent.next != 0 {
			t.Errorf("%v: exit code %d, %d faults, %s", c.args, code, w.agent.next, w.stderr.String())
		}
		same(t, before, filesOf(t, dir))
	}
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "run", tailPlan, "--out", filepath.Join(dir, "run"), "--force"); code != exitFailed {
		t.Fatalf("exit code %d, %s", code, w.stderr.String())
	}
	after := filesOf(t, filepath.Join(dir, "run"))
	if after["note.txt"] != "mine" || after["command/old.log"] != "" || len(after["result.json"]) < 100 {
		t.Errorf("%d files, %q", len(after), after["note.txt"])
	}
	w = world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "run", tailPlan, "--force"); code != exitUsage {
		t.Errorf("--force alone: exit code %d", code)
	}
}
