package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/probe/policy"
)

// database runs a PostgreSQL of the test's own and returns its URL.
func database(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Skip("no PostgreSQL in /usr/lib/postgresql: apt-get install postgresql")
	}
	bin := slices.Max(found)
	home, err := os.MkdirTemp("", "ledger")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 { // which PostgreSQL refuses
		const nobody = 65534
		if err := os.Chown(home, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	data := filepath.Join(home, "data")
	for _, args := range [][]string{
		{"initdb", "-D", data, "-A", "trust", "-U", "test", "--no-sync"},
		{"pg_ctl", "-D", data, "-w", "-l", filepath.Join(home, "log"), "-o", "-h '' -F -k " + home, "start"},
	} {
		cmd := exec.Command(filepath.Join(bin, args[0]), args[1:]...)
		cmd.Dir, cmd.SysProcAttr, cmd.Env = home, attr, []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		cmd := exec.Command(filepath.Join(bin, "pg_ctl"), "-D", data, "-m", "immediate", "-w", "stop")
		cmd.Dir, cmd.SysProcAttr = home, attr
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return fmt.Sprintf("postgres:///postgres?user=test&host=%s&sslmode=disable", home)
}

// answer is what a request came to: its status, 0 for no answer or half of one, its text, and
// whether it is a replay.
type answer struct {
	status int
	text   string
	replay bool
}

func TestPayment(t *testing.T) {
	url := database(t)
	payments := NewPayments()
	if _, ok := payments.Counters()["rows"]; ok {
		t.Error("rows without a ledger")
	}
	at := serve(t, func(ctx context.Context, l net.Listener) error { return payments.Serve(ctx, l, url) })
	transport := &http.Transport{DisableKeepAlives: true}
	client := http.Client{Transport: transport}
	ask := func(method, path, key, body string) (a answer) {
		// A body that cannot be rewound: Go's client repeats no such request by itself.
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+path, struct{ io.Reader }{strings.NewReader(body)})
		if err != nil {
			t.Error(err)
			return a
		}
		if key != "" {
			req.Header.Set(policy.HeaderIdempotencyKey, key)
		}
		resp, err := client.Do(req)
		if err != nil {
			return a
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return a
		}
		return answer{resp.StatusCode, string(text), resp.Header.Get(policy.HeaderIdempotencyReplay) == "true"}
	}
	audit := func(account string, status int, want Audit) {
		t.Helper()
		var got Audit
		a := ask("GET", "/audit/"+account, "", "")
		want.Account = account
		if err := json.Unmarshal([]byte(a.text), &got); err != nil || a.status != status || got != want {
			t.Errorf("%s: %+v, %+v, %v, want %d with %+v", account, a, got, err, status, want)
		}
	}

	t.Run("a client that keeps its key", func(t *testing.T) {
		for _, fail := range []string{"", "&fail=status", "&fail=truncated", "&fail=closed"} {
			account := "kept" + strings.TrimPrefix(fail, "&fail=")
			path := "/payments/" + account + "?fail_after_commit=2" + fail
			lost := 0
			if fail == "&fail=status" {
				lost = 500
			}
			for range 2 {
				if a := ask("POST", path, "k", "1"); a.status != lost {
					t.Errorf("%s: %+v, want %d", path, a, lost)
				}
			}
			audit(account, 409, Audit{Rows: 1, Unanswered: 1})
			first := ask("POST", path, "k", "1")
			if second := ask("POST", path, "k", "1"); first.status != 201 || !first.replay || second != first {
				t.Errorf("%s: %+v and %+v", path, first, second)
			}
			audit(account, 200, Audit{Rows: 1})
			if a := ask("POST", path, "k", "2"); a.status != 422 {
				t.Errorf("another body: %+v", a)
			}
		}
		// Four accounts with the same key: two answers of each lost, two replays, one other body.
		want := map[string]int64{
			"hits": 20, "ok": 8, "replays": 8, "lost": 8, "errors": 4, "conflicts": 0, "in_flight": 0, "rows": 4, "doubled": 0, "unanswered": 0,
		}
		if d := cmp.Diff(want, payments.Counters()); d != "" {
			t.Errorf("counters (-want +got):\n%s", d)
		}
	})
	t.Run("wrong clients", func(t *testing.T) {
		for i := range 3 {
			ask("POST", "/payments/keys?fail_after_commit=2", fmt.Sprint("k", i), "1")
			ask("POST", "/payments/none?fail_after_commit=2", "", "1")
		}
		audit("keys", 409, Audit{Rows: 3, Unanswered: 3})
		audit("none", 409, Audit{Rows: 3, Unanswered: 2})
		audit("nobody", 404, Audit{})
		payments.Reset()
		if c := payments.Counters(); c["hits"] != 0 || c["rows"] != 10 || c["unanswered"] != 5 {
			t.Errorf("counters %v, want those of the ledger after a reset", c)
		}
	})
	t.Run("one key at the same time", func(t *testing.T) {
		answers := make([]answer, 10)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = ask("POST", "/payments/race?delay=1s", "k", "1") })
		}
		all.Wait()
		made, refused := 0, 0
		for _, a := range answers {
			switch {
			case a.status == 201 && !a.replay:
				made++
			case a.status == 409:
				refused++
			case a.status != 201:
				t.Errorf("%+v", a)
			}
		}
		if made != 1 || refused == 0 {
			t.Errorf("%d made, %d refused: %+v", made, refused, answers)
		}
		audit("race", 200, Audit{Rows: 1})
	})
	t.Run("a client that goes", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+at+"/payments/gone?delay=300ms", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Error("it was answered before its delay")
		}
		for end := time.Now().Add(20 * time.Second); ask("GET", "/audit/gone", "", "").status == 404; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("a payment that was begun was not made")
			}
		}
	})
	t.Run("what is not valid", func(t *testing.T) {
		for _, query := range []string{"fail_after_commit=x", "fail_after_commit=-1", "fail=slow", "delay=5", "delay=2m", "dely=1s"} {
			if a := ask("POST", "/payments/bad?"+query, "", ""); a.status != 400 || !strings.Contains(a.text, strings.Split(query, "=")[0]) {
				t.Errorf("%s: %+v", query, a)
			}
		}
		audit("bad", 404, Audit{})
	})
}
