package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// open opens the journal of a folder, and closes it in the end.
func open(t testing.TB, dir string) (*Journal, Last) {
	t.Helper()
	j, last, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, last
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sample is a fault in which every kind of field is set.
func sample(id string) fault.Fault {
	now := time.Now()
	return fault.Fault{
		ID: id, State: fault.Active, Engine: fault.EBPF, EngineReason: "asked for", Placement: []string{"egress of v0"},
		Applied: now.Add(-time.Minute), Expires: now.Add(time.Hour), Token: 3,
		Offloads: []fault.Offload{{Namespace: "blue", Device: "v0", Cookie: 7, Index: 10, Before: []string{"rx-gro"}}},
		Spec: fault.Spec{
			Selector:  &target.Selector{Namespace: "blue", Device: "v0", Protocol: 6, Peers: []string{"192.0.2.1", "db"}, PeerPorts: []target.Ports{target.Port(80)}},
			Direction: fault.Both, Engine: fault.Auto, Force: []string{fault.ForceSSH}, Offload: fault.OffloadOff,
			Packet: &qdisc.Netem{
				Delay: time.Millisecond, Jitter: time.Microsecond, Distribution: qdisc.Custom, Samples: "\xff\xfe\x00\x01", Loss: 12.5, Rate: 1e6,
				Slot: qdisc.Slot{MinDelay: 1, MaxDelay: 2, Samples: "\x80\x00"}, Seed: 1<<63 + 1,
			},
			TTL: time.Hour, Owner: "uid 7 (bob)", OwnerKey: "uid:7", RequestID: "r\"1\n", Repair: true,
		},
	}
}

var places = []target.Place{{
	Namespace: "blue", Device: "v0", Index: 10, Cookie: 1<<63 + 7, Hook: target.Egress, Match: target.Match{Include: []target.Flow{{Protocol: 6, DestinationPorts: target.Port(80)}}},
}, {Device: "lo", Index: 1, Cookie: 9, Hook: target.Ingress, Owned: true}}

// sameFault ignores the sub-second part of what is told by another clock.
var sameFault = cmp.Options{cmpopts.EquateApproxTime(time.Second), cmpopts.EquateComparable(target.Flow{})}

func TestNextLifeIsToldWhatDidNotEnd(t *testing.T) {
	dir := t.TempDir()
	j, last := open(t, dir)
	if diff := cmp.Diff(Last{}, last); diff != "" {
		t.Errorf("a new folder's (-want +got):\n%s", diff)
	}
	rule := sample("bqk2")
	rule.Spec.Packet, rule.Spec.Content = nil, &content.Rule{Kind: content.Match, Expr: "tcp.len > 100", Hold: time.Second}
	toxic := fault.Fault{ID: "bqk3", Spec: fault.Spec{Target: "pg", Toxics: []fault.Toxic{{Kind: fault.Latency, Latency: time.Second}}}}
	for _, f := range []fault.Fault{sample("bqk1"), rule, toxic, sample("bqk4")} {
		must(t, j.Intend(t.Context(), f, places))
	}
	must(t, j.Hold(t.Context(), rule))
	must(t, j.Intend(t.Context(), toxic, nil))
	must(t, j.End(t.Context(), "bqk4", fault.Cleared))
	must(t, j.Close())
	if err := j.End(t.Context(), "bqk1", fault.Cleared); err == nil {
		t.Error("a closed journal took a record")
	}
	again, last := open(t, dir)
	if last.Torn+last.Damaged > 0 || len(last.Open) != 3 || len(last.Kept) > 0 || again.Empty() {
		t.Fatalf("%+v, want three faults", last)
	}
	for i, want := range []fault.Fault{sample("bqk1"), rule, toxic} {
		got := last.Open[i]
		if diff := cmp.Diff(want, got.Fault, sameFault, cmpopts.IgnoreFields(fault.Fault{}, "Expires", "Applied")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.ID, diff)
		}
		if got.Held != (i == 1) || !got.SameBoot || got.Monotonic == 0 || time.Since(got.Time) > time.Minute {
			t.Errorf("%s: %+v", want.ID, got)
		}
		if i == 2 {
			if len(got.Places) > 0 {
				t.Errorf("%s has places: %+v", want.ID, got.Places)
			}
			continue
		}
		if d := got.Fault.Expires.Sub(want.Expires).Abs(); d > time.Second {
			t.Errorf("%s ends %v off", want.ID, d)
		}
		var there []target.Place
		for _, p := range got.Places {
			there = append(there, p.Place)
		}
		if diff := cmp.Diff(places, there, sameFault); diff != "" {
			t.Errorf("%s: places (-want +got):\n%s", want.ID, diff)
		}
		if got.Places[0].Path != "/run/netns/blue" || got.Places[1].Path != fmt.Sprintf("/proc/%d/ns/net", os.Getpid()) || got.Places[1].Inode == 0 {
			t.Errorf("%s: namespaces %+v", want.ID, got.Places)
		}
	}
	for _, id := range []string{"bqk1", "bqk2", "bqk3"} {
		must(t, again.End(t.Context(), id, fault.Cleared))
	}
	if !again.Empty() {
		t.Error("not empty after all have ended")
	}
	must(t, again.Remove())
	must(t, again.Remove())
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A secret of the asker's session is in no file.
func TestSessionIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	f := sample("bqk1")
	f.Spec.SSHConnection = "192.0.2.99 1 192.0.2.98 22"
	must(t, j.Intend(t.Context(), f, places))
	text, err := os.ReadFile(filepath.Join(dir, Name))
	must(t, err)
	if bytes.Contains(text, []byte("192.0.2.99")) {
		t.Errorf("written: %s", text)
	}
	if st, err := os.Stat(filepath.Join(dir, Name)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestKept(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	for _, id := range []string{"bqk1", "bqk2", "bqk3"} {
		must(t, j.Intend(t.Context(), sample(id), places))
		must(t, j.Hold(t.Context(), sample(id)))
	}
	must(t, j.Keep(t.Context(), []fault.Fault{sample("bqk1"), sample("bqk2"), sample("bqk3")}))
	must(t, j.End(t.Context(), "bqk1", fault.Cleared)) // by the agent's stop, which goes no further
	must(t, j.Close())
	kept := func(want string, open ...string) *Journal {
		t.Helper()
		j, _, err := Open(dir)
		must(t, err)
		must(t, j.Close())
		j, last, err := Open(dir) // a life that does nothing changes nothing
		must(t, err)
		t.Cleanup(func() { _ = j.Close() })
		var ids, opened []string
		for _, f := range last.Kept {
			ids = append(ids, f.ID)
		}
		for _, e := range last.Open {
			opened = append(opened, e.Fault.ID)
		}
		if got := strings.Join(ids, " "); got != want || !cmp.Equal(open, opened, cmpopts.EquateEmpty()) {
			t.Errorf("kept %q, open %q, want %q and %q", got, opened, want, open)
		}
		return j
	}
	j = kept("bqk1 bqk2 bqk3", "bqk2", "bqk3")
	must(t, j.End(t.Context(), "bqk2", fault.Cleared)) // what was left in the kernel is cleaned
	must(t, j.End(t.Context(), "bqk3", fault.Cleared))
	must(t, j.Intend(t.Context(), sample("bqk1"), places)) // put back
	must(t, j.End(t.Context(), "bqk2", fault.Expired))
	must(t, j.Close())
	j = kept("bqk3", "bqk1")
	must(t, j.End(t.Context(), "bqk1", fault.Cleared))
	must(t, j.Intend(t.Context(), sample("bqk3"), places))
	must(t, j.End(t.Context(), "bqk3", fault.Cleared))
	must(t, j.Close())
	if !kept("").Empty() {
		t.Error("not empty in the end")
	}
}

// The end of a kept fault's time follows the clock that nobody sets, except over a boot.
func TestTimeLeftOfKept(t *testing.T) {
	f := sample("bqk1")
	now := time.Now()
	s := store(f, now, 1000)
	set := now.Add(-24 * time.Hour) // somebody set the wall clock back, 10 minutes later
	later := int64(1000 + 10*time.Minute)
	if got := s.fault(true, set, later).Expires.Sub(set); got.Round(time.Second) != 50*time.Minute {
		t.Errorf("in the same boot %v left, want 50m", got)
	}
	if got := s.fault(false, set, later).Expires; !got.Equal(f.Expires) {
		t.Errorf("in another boot until %v, want %v", got, f.Expires)
	}
}

// Wherever the file was cut off, all whole records are read and the next life writes on.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	must(t, j.Intend(t.Context(), sample("bqk1"), places))
	must(t, j.Intend(t.Context(), sample("bqk2"), places))
	must(t, j.Close())
	path := filepath.Join(dir, Name)
	text, err := os.ReadFile(path)
	must(t, err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	whole := len(text) - len(lines[2])
	for cut := whole; cut <= len(text); cut++ {
		if n := cut - whole; n > 12 && n%97 != 0 && cut < len(text)-3 { // within the JSON one is like another
			continue
		}
		must(t, os.WriteFile(path, text[:cut], 0o600))
		_, last, err := Open(dir)
		must(t, err)
		// Without its newline the last record is whole.
		wantOpen, wantTorn := 1, 1
		switch {
		case cut == whole:
			wantTorn = 0
		case cut >= len(text)-1:
			wantOpen, wantTorn = 2, 0
		}
		if len(last.Open) != wantOpen || last.Torn != wantTorn || last.Damaged != 0 {
			t.Fatalf("cut at %d of %d: %d open, %d torn, %d damaged", cut, len(text), len(last.Open), last.Torn, last.Damaged)
		}
		j, last, err := Open(dir)
		must(t, err)
		if len(last.Open) != wantOpen || last.Torn+last.Damaged != 0 {
			t.Fatalf("cut at %d: the life after: %+v", cut, last)
		}
		must(t, j.End(t.Context(), "bqk1", fault.Cleared))
		must(t, j.Close())
		_, last, err = Open(dir)
		must(t, err)
		if len(last.Open) != wantOpen-1 {
			t.Fatalf("cut at %d: a record of the life after was not read", cut)
		}
	}
}

func TestDamageInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	for _, id := range []string{"bqk1", "bqk2", "bqk3"} {
		must(t, j.Intend(t.Context(), sample(id), places))
	}
	must(t, j.Hold(t.Context(), sample("bqk2")))
	must(t, j.Close())
	path := filepath.Join(dir, Name)
	text, err := os.ReadFile(path)
	must(t, err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	// opening, 1, 2, 3, hold 2
	lines[2] = append([]byte("0"), lines[2][1:]...) // another checksum
	lines[2][9] ^= 4
	lines[3] = append(append(bytes.Clone(lines[1]), "\x00\xff\n"...), lines[3]...) // one a second time, and garbage
	must(t, os.WriteFile(path, bytes.Join(lines, nil), 0o600))
	_, last := open(t, dir)
	if len(last.Open) != 3 || last.Damaged != 3 || last.Torn != 0 {
		t.Fatalf("%d open, %d damaged, %d torn", len(last.Open), last.Damaged, last.Torn)
	}
	for i, want := range []struct {
		id     string
		places int
		held   bool
	}{{"bqk1", 2, false}, {"bqk3", 2, false}, {"bqk2", 0, true}} {
		if e := last.Open[i]; e.Fault.ID != want.id || len(e.Places) != want.places || e.Held != want.held {
			t.Errorf("%d: %s with %d places, held %t; want %+v", i, e.Fault.ID, len(e.Places), e.Held, want)
		}
	}
}

// However many faults come and go, the file stays small, and loses nothing that is open.
func TestFileIsBounded(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	must(t, j.Intend(t.Context(), sample("stays"), places))
	must(t, j.Hold(t.Context(), sample("stays")))
	var largest int64
	for i := range 10_000 {
		f := sample(fmt.Sprintf("bqk%d", i))
		must(t, j.Intend(t.Context(), f, places))
		must(t, j.Hold(t.Context(), f))
		if i%3 == 0 {
			must(t, j.Hold(t.Context(), sample("stays"))) // renewed
		}
		must(t, j.End(t.Context(), f.ID, fault.Cleared))
		st, err := os.Stat(j.path)
		must(t, err)
		largest = max(largest, st.Size())
	}
	if largest > 1<<20 {
		t.Errorf("the file grew to %d bytes", largest)
	}
	must(t, j.Close())
	_, last := open(t, dir)
	if len(last.Open) != 1 || last.Open[0].Fault.ID != "stays" || !last.Open[0].Held || len(last.Open[0].Places) != 2 {
		t.Errorf("%+v", last.Open)
	}
}

func TestManyWriters(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	const writers, each = 50, 20
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				f := sample(fmt.Sprintf("w%d-%d", w, i))
				err := j.Intend(t.Context(), f, places)
				if err == nil && i%2 == 0 {
					err = j.End(t.Context(), f.ID, fault.Cleared)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	must(t, j.Close())
	_, last := open(t, dir)
	if len(last.Open) != writers*each/2 || last.Torn+last.Damaged > 0 {
		t.Errorf("%d open, %d torn, %d damaged", len(last.Open), last.Torn, last.Damaged)
	}
}

// What stands there instead of a file is not followed, written to or waited for.
func TestNoFile(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"a symlink": func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a folder":  func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, plant(filepath.Join(dir, Name)))
			if _, _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "journal: ") {
				t.Errorf("opened: %v", err)
			}
		})
	}
}

func BenchmarkRecord(b *testing.B) {
	j, _ := open(b, b.TempDir())
	f := sample("bqk1")
	for b.Loop() {
		must(b, j.Intend(b.Context(), f, places))
	}
}
