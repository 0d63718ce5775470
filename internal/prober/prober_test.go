package prober

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"netemd/internal/child"
	"netemd/probe"
)

func TestMain(m *testing.M) {
	child.Register("crash", func([]string) int { panic("on purpose") })
	child.Register("mute", func([]string) int { time.Sleep(time.Minute); return 0 })
	child.Run()
	os.Exit(m.Run())
}

func listen(t *testing.T) (*net.TCPListener, netip.AddrPort) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Addr().(*net.TCPAddr).AddrPort()
}

func TestRun(t *testing.T) {
	l, addr := listen(t)
	_ = l.Close()
	o := Order{Request: probe.Request{Count: 50, Concurrency: 5, Pace: probe.NoPace}, Address: addr, User: "u", Password: "not in a list of processes"}
	var reports []int
	samples, err := Run(t.Context(), "", o, func(done, count int) {
		if count != 50 {
			t.Errorf("report of %d calls, want 50", count)
		}
		reports = append(reports, done)
	})
	if err != nil || len(samples) != 50 || len(reports) != 50 {
		t.Fatalf("%d samples, %d reports, %v; want 50 of each", len(samples), len(reports), err)
	}
	for i, s := range samples {
		if s.Seq != i || s.Class != probe.Refused || s.Remote != addr || s.EndNS <= s.StartNS {
			t.Errorf("sample %d is %+v, want a refusal", i, s)
		}
		if reports[i] != i+1 {
			t.Errorf("report %d says %d", i, reports[i])
		}
	}
}

// TestRunStops: a run that is cut short keeps what it has, and its child is gone.
func TestRunStops(t *testing.T) {
	l, addr := listen(t) // its kernel accepts, it never answers
	gone := errors.New("gone")
	ctx, stop := context.WithCancelCause(t.Context())
	o := Order{Request: probe.Request{Count: 1000, Concurrency: 2, Pace: probe.NoPace, Timeout: 100 * time.Millisecond}, Address: addr}
	var at time.Time
	samples, err := Run(ctx, "", o, func(done, _ int) {
		if done == 6 {
			at = time.Now()
			stop(gone)
		}
	})
	if !errors.Is(err, gone) || len(samples) < 6 || len(samples) > 12 {
		t.Errorf("%d samples, %v; want 6 or a few more, and the cause", len(samples), err)
	}
	if d := time.Since(at); d > stopGrace {
		t.Errorf("stopping took %v", d)
	}
	for _, s := range samples {
		if s.Class != probe.Timeout {
			t.Errorf("sample %+v, want a timeout", s)
		}
	}
	_ = l.Close()
}

func TestRunRefuses(t *testing.T) {
	if _, err := Run(t.Context(), "", Order{Request: probe.Request{Count: -1}}, nil); !errors.Is(err, probe.ErrRequest) {
		t.Errorf("error %v, want a refused request", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(ctx, "", Order{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestCollect(t *testing.T) {
	tests := []struct {
		name, out string
		samples   int
		ended     bool
		err       string
	}{
		{"all", `{"done":1,"count":1,"sample":{"seq":0}}` + "\n" + `{"end":true}`, 1, true, ""},
		{"stopped", `{"done":1,"count":2,"sample":{"seq":0}}` + "\n" + `{"end":true,"error":"told to stop"}`, 1, true, "told to stop"},
		{"died", `{"done":1,"count":2,"sample":{"seq":0}}` + "\n", 1, false, "its output ended early"},
		{"died while it wrote", `{"done":1,"count":2,"sample":{"seq":0}}` + "\n" + `{"done":2,`, 1, false, "unexpected EOF"},
		{"nonsense", "panic: on purpose\n", 0, false, "invalid character"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			samples, ended, err := collect(strings.NewReader(test.out), func(int, int) {})
			if len(samples) != test.samples || ended != test.ended || (err == nil) != (test.err == "") {
				t.Fatalf("%d samples, ended %t, error %v", len(samples), ended, err)
			}
			if err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %q, want %q", err, test.err)
			}
		})
	}
}

// TestCrash: what a child says as it dies reaches the caller.
func TestCrash(t *testing.T) {
	samples, err := run(t.Context(), "", "crash", Order{}, silence, nil)
	if len(samples) != 0 || err == nil || !strings.Contains(err.Error(), "panic: on purpose") {
		t.Errorf("%d samples, error %v; want the child's panic", len(samples), err)
	}
}

// TestRunOfAMuteChild: a child that was stopped does not hold up the run for ever.
func TestRunOfAMuteChild(t *testing.T) {
	began := time.Now()
	o := Order{Request: probe.Request{Count: 1, Timeout: 10 * time.Millisecond}}
	_, err := run(t.Context(), "", "mute", o, 100*time.Millisecond, nil)
	if err == nil || !strings.Contains(err.Error(), "said nothing for") {
		t.Errorf("error %v, want one that says it was silent", err)
	}
	if d := time.Since(began); d > stopGrace+3*time.Second {
		t.Errorf("it took %v", d)
	}
}
