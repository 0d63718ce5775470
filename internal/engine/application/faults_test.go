package application

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/fault"
)

// TestErrors counts what is answered, what comes to the server, and what is told.
func TestErrors(t *testing.T) {
	for name, http2 := range versions {
		t.Run(name, func(t *testing.T) {
			var came atomic.Int64
			web := startWeb(t, func(w http.ResponseWriter, r *http.Request) {
				came.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, "good")
			})
			address, rules := startProxy(t, web)
			c := newClient(t, http2)
			f := fault.Request{Error: 20, Status: 503, RetryAfter: 2 * time.Second, Seed: 7}
			rules.set([]Rule{in("kqv1", f)})
			const n = 500
			errors := 0
			for k := range uint64(n) {
				a, text := do(t, c, "POST", "http://"+address, strings.NewReader(strings.Repeat("x", 1<<15)))
				want, _ := f.Draw(k)
				if (a.StatusCode == 503) != (want == fault.Answered) {
					t.Fatalf("request %d: %s, drawn %d", k, a.Status, want)
				}
				if a.StatusCode != 503 {
					continue
				}
				errors++
				if text != "503 Service Unavailable: fault kqv1 of netemd\n" || a.Header.Get("Retry-After") != "2" || a.Header.Get(FaultHeader) != "kqv1" {
					t.Fatalf("%q with %v", text, a.Header)
				}
			}
			if off := math.Abs(float64(errors)/n - .2); off > 3.2905*math.Sqrt(.2*.8/n) {
				t.Errorf("%d errors of %d", errors, n)
			}
			s := rules.states()[0]
			if want := (fault.Counters{Seen: n, Errors: uint64(errors)}); s.Counters != want || s.Over {
				t.Errorf("counted %+v, want %+v", s, want)
			}
			if came.Load() != int64(n-errors) {
				t.Errorf("%d came to the server", came.Load())
			}
		})
	}
}

// TestAborts: a connection of HTTP/1.1 is reset; a stream of HTTP/2 is, and its connection goes on.
func TestAborts(t *testing.T) {
	var came atomic.Int64
	web := startWeb(t, func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		_, _ = io.WriteString(w, r.RemoteAddr)
	})
	address, rules := startProxy(t, web)
	all := in("kqv1", fault.Request{Abort: 100, Seed: 1, Path: "/cut"})
	rules.set([]Rule{all})
	t.Run("HTTP/1.1", func(t *testing.T) {
		_, err := newClient(t, false).Post("http://"+address+"/cut", "text/plain", strings.NewReader("x")) //nolint:bodyclose // there is none
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		c := newClient(t, true)
		_, before := do(t, c, "GET", "http://"+address, nil)
		_, err := c.Get("http://" + address + "/cut") //nolint:bodyclose // there is none
		if err == nil || !strings.Contains(err.Error(), "INTERNAL_ERROR") {
			t.Errorf("%v, want RST_STREAM with INTERNAL_ERROR", err)
		}
		if _, after := do(t, c, "GET", "http://"+address, nil); after != before {
			t.Error("the connection was cut, and not the stream alone")
		}
	})
	if got := rules.states()[0].Counters; got != (fault.Counters{Seen: 2, Aborted: 2}) || came.Load() != 2 {
		t.Errorf("counted %+v, and %d came to the server", got, came.Load())
	}
}

// TestDelays measures what is held against the draw.
func TestDelays(t *testing.T) {
	for name, http2 := range versions {
		t.Run(name, func(t *testing.T) {
			web := startWeb(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "good") })
			address, rules := startProxy(t, web)
			c := newClient(t, http2)
			do(t, c, "GET", "http://"+address, nil) // connects
			f := fault.Request{Delay: 50, Latency: 60 * time.Millisecond, Jitter: 20 * time.Millisecond, Seed: 3}
			rules.set([]Rule{in("kqv1", f)})
			held := uint64(0)
			for k := range uint64(20) {
				began := time.Now()
				do(t, c, "GET", "http://"+address, nil)
				took := time.Since(began)
				verdict, wait := f.Draw(k)
				if verdict == fault.Held {
					held++
				}
				if took < wait { // there is no upper bound on a busy machine
					t.Errorf("request %d took %v, want %v", k, took, wait)
				}
			}
			if got := rules.states()[0].Counters; got != (fault.Counters{Seen: 20, Delayed: held}) || held == 0 {
				t.Errorf("counted %+v, drawn %d", got, held)
			}
		})
	}
}

// TestClientGoesWhileHeld: a delay ends with its client, of whatever kind its request is, and the server
// never sees it.
func TestClientGoesWhileHeld(t *testing.T) {
	var came atomic.Int64
	web := startWeb(t, func(http.ResponseWriter, *http.Request) { came.Add(1) })
	for name, http2 := range versions {
		for _, body := range []string{"", strings.Repeat("x", 1<<15)} {
			t.Run(name+" "+map[bool]string{true: "with", false: "without"}[body != ""]+" a body", func(t *testing.T) {
				r := &rules{}
				r.hear()
				ended := make(chan meeting, 1)
				address := serveTCP(t, func(ctx context.Context, l *net.TCPListener) error {
					u := newUpstream(web)
					s := newServer(u, r)
					s.Handler = http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { ended <- r.meet(q.Context(), q, goneOf(q)) })
					go func() { <-ctx.Done(); _ = s.Close() }()
					if err := s.Serve(listener{l, u}); !errors.Is(err, http.ErrServerClosed) {
						return err
					}
					return nil
				})
				r.set([]Rule{in("kqv1", fault.Request{Delay: 100, Latency: time.Hour})})
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				q, err := http.NewRequestWithContext(ctx, "POST", "http://"+address, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := newClient(t, http2).Do(q); err == nil { //nolint:bodyclose // there is none
					t.Fatal("it was answered")
				}
				select {
				case m := <-ended:
					if !m.gone {
						t.Errorf("it ended with %+v", m)
					}
				case <-time.After(10 * time.Second):
					t.Error("it is held for a client that has gone")
				}
			})
		}
	}
	if came.Load() != 0 {
		t.Errorf("%d came to the server", came.Load())
	}
}

// TestRulesEnd: whatever ends a rule, what it holds goes on at once.
func TestRulesEnd(t *testing.T) {
	hour := fault.Request{Delay: 100, Latency: time.Hour}
	for name, end := range map[string]func(*rules){
		"cleared":     func(r *rules) { r.set(nil) },
		"replaced":    func(r *rules) { r.set([]Rule{in("kqv2", fault.Request{Delay: 1, Latency: time.Second, Path: "/x"})}) },
		"its time":    func(*rules) { time.Sleep(time.Minute) },
		"the silence": func(*rules) { time.Sleep(silence + time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rules{}
				r.hear()
				r.set([]Rule{in("kqv1", hour)})
				met := make(chan meeting)
				go func() {
					q, _ := http.NewRequestWithContext(t.Context(), "GET", "http://web/", nil)
					met <- r.meet(t.Context(), q, nil)
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				began := time.Now()
				if name == "its time" { // the agent lives
					go func() {
						for range 130 {
							r.hear()
							time.Sleep(500 * time.Millisecond)
						}
					}()
				}
				end(r)
				if m := <-met; m != (meeting{}) {
					t.Errorf("it ended with %+v", m)
				}
				if took := time.Since(began); took > time.Minute {
					t.Errorf("it took %v", took)
				}
				r.set(nil)
				if name == "its time" {
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// TestSilence lets everything pass while nothing is heard of the agent, and counts it.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rules{}
		r.hear()
		r.set([]Rule{in("kqv1", fault.Request{Error: 100, Status: 503})})
		defer r.set(nil)
		meet := func() fault.Verdict {
			q, _ := http.NewRequestWithContext(t.Context(), "GET", "http://web/", nil)
			return r.meet(t.Context(), q, nil).verdict
		}
		if meet() != fault.Answered {
			t.Error("not in force")
		}
		time.Sleep(silence + time.Millisecond)
		if meet() != fault.Passed {
			t.Error("in force without an agent")
		}
		r.hear()
		if meet() != fault.Answered {
			t.Error("not in force when the agent is back")
		}
		if got := r.states()[0].Counters; got != (fault.Counters{Seen: 3, Errors: 2, Opened: 1}) {
			t.Errorf("counted %+v", got)
		}
	})
}

// TestSet: what stays goes on counting, with its new time; what is asked for anew begins anew.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rules{}
		r.hear()
		meet := func() {
			q, _ := http.NewRequestWithContext(t.Context(), "GET", "http://web/", nil)
			r.meet(t.Context(), q, nil)
		}
		one := in("kqv1", fault.Request{Delay: 50, Latency: time.Millisecond, Headers: []fault.Header{}})
		two := in("kqv2", fault.Request{Abort: 1})
		r.set([]Rule{one})
		meet()
		one.DeadlineUnixNS += int64(time.Minute)
		one.Request.Headers = nil // as it comes back from JSON
		r.set([]Rule{one, two})
		meet()
		time.Sleep(time.Minute + time.Second) // two's time is over, and one's was renewed
		meet()
		s := r.states()
		// The third request came after the agent's silence, and was let through.
		if len(s) != 2 || s[0].Counters.Seen != 3 || s[0].Counters.Opened != 1 || s[0].Over || s[1].Counters.Seen != 1 || !s[1].Over {
			t.Errorf("%+v", s)
		}
		changed := one
		changed.Request.Latency = 2 * time.Millisecond
		r.set([]Rule{changed})
		if s := r.states(); len(s) != 1 || s[0].Counters.Seen != 0 {
			t.Errorf("%+v", s)
		}
		r.set(nil)
	})
}

// TestInTurn has two rules: what the first answers, the second does not see.
func TestInTurn(t *testing.T) {
	r := &rules{}
	r.hear()
	r.set([]Rule{
		in("kqv1", fault.Request{Error: 50, Status: 503, Method: "GET", Seed: 1}),
		in("kqv2", fault.Request{Delay: 100, Latency: time.Microsecond}),
		in("kqv3", fault.Request{Error: 100, Status: 500, Path: "/bad"}),
	})
	defer r.set(nil)
	by := map[string]uint64{}
	for range 100 {
		q, _ := http.NewRequestWithContext(t.Context(), "GET", "http://web/bad", nil)
		by[r.meet(t.Context(), q, nil).by.ID]++
	}
	s := r.states()
	if by["kqv1"] == 0 || by["kqv3"] == 0 || s[0].Counters.Seen != 100 || s[1].Counters != (fault.Counters{Seen: by["kqv3"], Delayed: by["kqv3"]}) ||
		s[2].Counters != (fault.Counters{Seen: by["kqv3"], Errors: by["kqv3"]}) {
		t.Errorf("%v: %+v", by, s)
	}
}
