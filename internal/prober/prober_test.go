package prober

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/child"
	"netemd/probe"
	"netemd/probe/policy"
)

func TestMain(m *testing.M) {
	child.Register("crash", func([]string) int { panic("on purpose") })
	child.Register("mute", func([]string) int { time.Sleep(time.Minute); return 0 })
	child.Run()
	os.Exit(m.Run())
}

// runAll runs an order and collects its samples in the order of their numbers. each may
// be nil.
func runAll(ctx context.Context, namespace string, o Order, each func(done int)) ([]probe.Sample, end, error) {
	return runNamed(ctx, namespace, childName, o, mute, each)
}

func runNamed(ctx context.Context, namespace, name string, o Order, mute time.Duration, each func(done int)) ([]probe.Sample, end, error) {
	var samples []probe.Sample
	e, err := run(ctx, namespace, name, o, mute, func(s []probe.Sample) {
		samples = append(samples, s...)
		if each != nil {
			each(len(samples))
		}
	})
	probe.BySeq(samples)
	return samples, e, err
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
	samples, e, err := runAll(t.Context(), "", o, nil)
	if err != nil || len(samples) != 50 || e.Load.Started != 50 || e.Load.Loop != "closed" {
		t.Fatalf("%d samples, %+v, %v; want 50", len(samples), e, err)
	}
	for i, s := range samples {
		if s.Seq != i || s.Class != probe.Refused || s.Remote != addr || s.EndNS <= s.StartNS {
			t.Errorf("sample %d is %+v, want a refusal", i, s)
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
	samples, _, err := runAll(ctx, "", o, func(done int) {
		if done >= 6 && at.IsZero() {
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
	if _, _, err := runAll(t.Context(), "", Order{Request: probe.Request{Count: -1}}, nil); !errors.Is(err, probe.ErrRequest) {
		t.Errorf("error %v, want a refused request", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	bad := &policy.Policy{Retry: &policy.Retry{MaxAttempts: -1}}
	if _, _, err := runAll(t.Context(), "", Order{Policy: bad}, nil); !errors.Is(err, probe.ErrRequest) {
		t.Errorf("error %v, want a refused policy", err)
	}
	if _, _, err := runAll(ctx, "", Order{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

// TestRead: what a child wrote is understood to its last message, and what ends early is
// told from what has ended.
func TestRead(t *testing.T) {
	one := message{Samples: []probe.Sample{{Seq: 0, Class: probe.OK, Remote: netip.MustParseAddrPort("10.0.0.1:80"), Attempts: []probe.Sample{{Seq: 1}}}}}
	all := []message{one, {}, {End: &end{Error: "told to stop", Load: probe.Load{Started: 2}}}}
	encode := func(messages ...message) []byte {
		var b bytes.Buffer
		enc := gob.NewEncoder(&b)
		for _, m := range messages {
			if err := enc.Encode(m); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	whole := encode(all...)
	tests := []struct {
		name    string
		out     []byte
		samples int
		ended   bool
		err     string
	}{
		{"all", whole, 1, true, ""},
		{"died", encode(all[:2]...), 1, false, "its output ended early"},
		{"died while it wrote", whole[:len(whole)-3], 1, false, "unexpected EOF"},
		{"nonsense", []byte("panic: on purpose\n"), 0, false, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var samples []probe.Sample
			ended, err := read(bytes.NewReader(test.out), func(s []probe.Sample) { samples = append(samples, s...) })
			if len(samples) != test.samples || (ended != nil) != test.ended || (err == nil) != test.ended {
				t.Fatalf("%d samples, ended %+v, error %v", len(samples), ended, err)
			}
			if err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %q, want %q", err, test.err)
			}
			if len(samples) > 0 {
				if d := cmp.Diff(one.Samples, samples, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
					t.Errorf("samples (-written +read):\n%s", d)
				}
			}
		})
	}
}

// hangs is a caller that breaks its contract.
type hangs struct{ until chan struct{} }

func (h hangs) Call(context.Context, int) probe.Sample { <-h.until; return probe.Sample{} }

// TestStuck: a call that does not end when its budget does ends the run.
func TestStuck(t *testing.T) {
	h := hangs{make(chan struct{})}
	defer close(h.until)
	o := Order{Request: probe.Request{Kind: probe.KindTCP, Count: 1, Timeout: time.Millisecond}, Patience: 20 * time.Millisecond}
	kept := kinds[probe.KindTCP]
	kinds[probe.KindTCP] = func(Order) (probe.Caller, error) { return h, nil }
	defer func() { kinds[probe.KindTCP] = kept }()
	e := o.run(t.Context(), func(probe.Sample) {})
	if !strings.Contains(e.Error, "call 0 has not ended 20ms after its budget") {
		t.Errorf("end %+v, want the call that is stuck", e)
	}
}

// TestCrash: what a child says as it dies reaches the caller.
func TestCrash(t *testing.T) {
	samples, _, err := runNamed(t.Context(), "", "crash", Order{}, mute, nil)
	if len(samples) != 0 || err == nil || !strings.Contains(err.Error(), "panic: on purpose") {
		t.Errorf("%d samples, error %v; want the child's panic", len(samples), err)
	}
}

// TestRunOfAMuteChild: a child that was stopped does not hold up the run for ever.
func TestRunOfAMuteChild(t *testing.T) {
	began := time.Now()
	o := Order{Request: probe.Request{Count: 1, Timeout: 10 * time.Millisecond}}
	_, _, err := runNamed(t.Context(), "", "mute", o, 100*time.Millisecond, nil)
	if err == nil || !strings.Contains(err.Error(), "said nothing for") {
		t.Errorf("error %v, want one that says it was silent", err)
	}
	if d := time.Since(began); d > stopGrace+3*time.Second {
		t.Errorf("it took %v", d)
	}
}
