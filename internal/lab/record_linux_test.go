package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"netemd/internal/lab/service"
)

func TestReadRecord(t *testing.T) {
	good := `{"schemaVersion":2,"boot_id":"b","definition":{"Name":"x","Nodes":[{"Name":"a"}]}}`
	for _, c := range []struct{ name, text, want string }{
		{"x", good, ""},
		{"y", good, `is of lab "x"`},
		{"x", strings.Replace(good, ":2,", ":3,", 1), "version 3, want 2"},
		{"..", strings.Replace(good, `"x"`, `".."`, 1), `name "..": want`},
		{"x", "{", "unexpected end"},
	} {
		path := filepath.Join(t.TempDir(), "record")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readRecord(path, c.name)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzReadRecord(f *testing.F) {
	f.Add(`{"schemaVersion":1,"definition":{"Name":"x","Nodes":[{"Name":"a"}]},"services":[{"address":"1.2.3.4:5"}]}`)
	path := filepath.Join(f.TempDir(), "record")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := readRecord(path, "x")
		if err == nil && (r.Definition.Name != "x" || r.Definition.checkNames() != nil) {
			t.Errorf("accepted %q", text)
		}
	})
}

// TestUnbelievedRecord has records that name what is not the lab's.
func TestUnbelievedRecord(t *testing.T) {
	d := testDefinition(t)
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = sleep.Process.Kill(), sleep.Wait() }()
	p, err := service.Identify(sleep.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	later := p
	later.Start--
	dir := t.TempDir()
	m := newManager(t, dir)
	for name, r := range map[string]*record{
		"of an earlier boot":   {BootID: "earlier", Complete: true, Services: []serviceRecord{{Process: p}}},
		"of an earlier number": {BootID: boot, Complete: true, Services: []serviceRecord{{Process: later}}},
	} {
		r.SchemaVersion, r.Definition = recordVersion, d
		if err := errors.Join(os.MkdirAll(m.labDir(d.Name), 0o755), m.save(r)); err != nil {
			t.Fatal(err)
		}
		if err := m.Adopt(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !p.Alive() {
			t.Fatalf("%s: the process was killed", name)
		}
		nothingLeft(t, dir, d)
	}
	elsewhere := t.TempDir()
	r := &record{SchemaVersion: recordVersion, BootID: boot, Definition: d, Services: []serviceRecord{{Name: "db", Home: elsewhere}}}
	if err := m.teardown(t.Context(), &running{record: r}); err == nil {
		t.Error("a folder of somebody else's was believed to be ours")
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}

func TestRealPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	base, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", "/not/yet"} {
		if got, want := realPath(dir+"/link"+end), base+"/real"+end; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestOldRecord takes over a state folder with a lab of the earlier kind of record.
func TestOldRecord(t *testing.T) {
	for _, by := range []string{"adopt", "cleanup"} {
		d := testDefinition(t)
		dir := t.TempDir()
		m := newManager(t, dir)
		if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
			t.Fatal(err)
		}
		boot, err := bootID()
		if err != nil {
			t.Fatal(err)
		}
		old := `{"schemaVersion":1,"boot_id":"` + boot + `","complete":true,"definition":{"Name":"` + d.Name + `","Nodes":[{"Name":"client","Services":null},
			{"Name":"server","Services":[{"Name":"proxy","Kind":"proxy","Port":15432,"Upstream":"10.78.0.2:5432"}]}],
			"Links":[{"A":"client","B":"server","Subnet":"10.78.0.0/24","Direct":false}],
			"Targets":[{"Name":"db","Node":"server","Client":"client","Port":5432,"ProxyPort":15432}]},
			"services":[{"node":"server","name":"proxy","kind":"proxy","address":"10.78.0.2:15432","process":{"pid":0,"start":0}}]}`
		if err := os.WriteFile(m.recordPath(d.Name), []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		next := newManager(t, dir)
		if by == "adopt" {
			err = next.Adopt(t.Context())
		} else {
			err = cleaned(t.Context(), next)
		}
		if err != nil {
			t.Errorf("%s: %v", by, err)
		}
		nothingLeft(t, dir, d)
		_ = m.Close()
	}
}
