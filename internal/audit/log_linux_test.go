package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"netemd/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// folder is one in which only this user may write.
func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "audit")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// records reads a file; each line must be a whole record.
func records(t *testing.T, path string) (all []Record) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		t.Errorf("%s ends in the middle of a line", path)
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		var r Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%s: %q: %v", path, s.Text(), err)
		}
		all = append(all, r)
	}
	return all
}

func TestWrite(t *testing.T) {
	path := filepath.Join(folder(t), "audit.jsonl")
	l := open(t, Config{Path: path, MaxBytes: 1 << 20, Keep: 2})
	uid := uint32(1001)
	evil := "a\nb\x00c\r\x1b[31m\u2028\xff"
	if err := l.Write(Record{Actor: evil, Verb: "apply", Target: evil, Request: strings.Repeat("x", 2*MaxRequest), Error: evil, Code: "OK", Peer: &Peer{UID: &uid}, Faults: []string{"bqk1"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(Record{Actor: Agent, Verb: "expired", Code: "OK"}); err != nil {
		t.Fatal(err)
	}
	got := records(t, path)
	if len(got) != 2 {
		t.Fatalf("%d records, want 2: nothing in a value may break a line", len(got))
	}
	if r := got[0]; !strings.HasPrefix(r.Target, "a\nb\x00c\r") || len(r.Request) != MaxRequest || *r.Peer.UID != uid || r.Time.IsZero() || r.Monotonic <= 0 {
		t.Errorf("%+v", r)
	}
	if got[1].Monotonic < got[0].Monotonic {
		t.Error("the monotonic clock went back")
	}
	data, _ := os.ReadFile(path)
	if bytes.ContainsAny(data, "\x00\r\x1b") {
		t.Errorf("control characters stand as themselves: %q", data)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v, want 0640", st.Mode(), err)
	}
}

func TestReopenedLogGoesOn(t *testing.T) {
	path := filepath.Join(folder(t), "a")
	for range 3 {
		l := open(t, Config{Path: path, MaxBytes: 1 << 20})
		if err := errors.Join(l.Write(Record{Verb: "x"}), l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		if err := l.Write(Record{}); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after its end: %v", err)
		}
	}
	if n := len(records(t, path)); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
	var none *Log
	if err := errors.Join(none.Write(Record{}), none.Close()); err != nil {
		t.Errorf("no log: %v", err)
	}
}

// By many at once, no record is lost or torn, and no more files stay than were asked for.
func TestRotation(t *testing.T) {
	dir := folder(t)
	path := filepath.Join(dir, "a")
	const most = 4000
	l := open(t, Config{Path: path, MaxBytes: most, Keep: 3})
	if err := os.WriteFile(path+".9", nil, 0o600); err != nil { // of a larger Keep
		t.Fatal(err)
	}
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := l.Write(Record{Verb: fmt.Sprintf("%d-%d", w, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	total := 0
	for _, e := range entries {
		names = append(names, e.Name())
		st, err := e.Info()
		if err != nil || st.Size() > most || st.Mode().Perm() != 0o640 {
			t.Errorf("%s: %d bytes, mode %v, %v, want at most %d and 0640", e.Name(), st.Size(), st.Mode(), err, most)
		}
		total += len(records(t, filepath.Join(dir, e.Name())))
	}
	if want := []string{"a", "a.1", "a.2", "a.3"}; !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
	if last := records(t, path); total >= writers*each || len(last) == 0 {
		t.Errorf("%d records stay of %d, want fewer: the oldest go", total, writers*each)
	}
	if newest, older := records(t, path+".1"), records(t, path+".2"); newest[0].Monotonic < older[0].Monotonic {
		t.Error("a.1 is older than a.2")
	}
}

// What logrotate moved away is not written to any more.
func TestMovedAway(t *testing.T) {
	path := filepath.Join(folder(t), "a")
	l := open(t, Config{Path: path, MaxBytes: 1 << 20})
	if err := l.Write(Record{Verb: "before"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(Record{Verb: "after"}); err != nil {
		t.Fatal(err)
	}
	if old, now := records(t, path+".old"), records(t, path); len(old) != 1 || len(now) != 1 || now[0].Verb != "after" {
		t.Errorf("old %+v, new %+v", old, now)
	}
}

func TestRefusedPlaces(t *testing.T) {
	dir := folder(t)
	link := filepath.Join(dir, "link")
	victim := filepath.Join(dir, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink(victim, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: link}); err == nil || !strings.Contains(err.Error(), "symbolic link") || !strings.Contains(err.Error(), link) {
		t.Errorf("a link: %v", err)
	}
	if _, err := Open(Config{Path: dir}); err == nil {
		t.Error("a folder was opened")
	}
	if data, _ := os.ReadFile(victim); string(data) != "precious" {
		t.Errorf("what the link points at is now %q", data)
	}
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o777), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: filepath.Join(open, "a")}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a folder that all may write in: %v", err)
	}
	if _, err := Open(Config{Path: filepath.Join(dir, "none", "a")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}

	// One that comes later is not followed, either.
	path := filepath.Join(dir, "a")
	l, err := Open(Config{Path: path, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := errors.Join(os.Remove(path), os.Symlink(victim, path)); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(Record{}); err == nil {
		t.Error("a link that came later was followed")
	}
	if data, _ := os.ReadFile(victim); string(data) != "precious" {
		t.Errorf("what the link points at is now %q", data)
	}
}
