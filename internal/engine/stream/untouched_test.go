package stream

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
)

// TestRemoteUntouched has a Toxiproxy that hangs from the first question on: nothing was made on
// the proxy of somebody else's, and so it is not disabled either, however often the undo is tried.
func TestRemoteUntouched(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		mu.Lock()
		asked = append(asked, q.Method)
		mu.Unlock()
		<-q.Context().Done()
	}))
	defer s.Close()
	r := &Remote{Tag: "netemd-test", Life: "life", Limit: 100 * time.Millisecond}
	p := target.Toxiproxy{API: strings.TrimPrefix(s.URL, "http://"), Name: "mine"}
	if err := r.Set(t.Context(), p, []fault.Toxic{{Kind: fault.Down}}, time.Now().Add(time.Minute)); !errors.Is(err, ErrStuck) {
		t.Errorf("set: %v", err)
	}
	for range 2 {
		if err := r.Clear(t.Context(), p); !errors.Is(err, ErrStuck) {
			t.Errorf("clear: %v", err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 3 || slices.ContainsFunc(asked, func(m string) bool { return m != http.MethodGet }) {
		t.Errorf("asked %v, want 3 questions and no order", asked)
	}
}

// TestRemoteHangsInTheMiddle has a Toxiproxy that hangs once something is changed: it is waited
// for once, and what is tried to bring it back is short.
func TestRemoteHangsInTheMiddle(t *testing.T) {
	var hangs, healed atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodGet && !healed.Load() {
			hangs.Store(true)
		}
		if !hangs.Load() {
			_, _ = io.WriteString(w, `{"name":"mine","listen":"127.0.0.1:1","upstream":"127.0.0.1:2","enabled":true,"toxics":[]}`)
			return
		}
		_, _ = io.Copy(io.Discard, q.Body) // else the server does not notice that the client goes
		<-q.Context().Done()
	}))
	defer s.Close()
	const limit = 4 * unstuckTime
	r := &Remote{Tag: "netemd-test", Life: "life", Limit: limit}
	p := target.Toxiproxy{API: strings.TrimPrefix(s.URL, "http://"), Name: "mine"}
	began := time.Now()
	err := r.Set(t.Context(), p, []fault.Toxic{{Kind: fault.Down}}, time.Now().Add(time.Minute))
	took := time.Since(began)
	if stuck, ok := errors.AsType[*StuckError](err); !ok || stuck.Recovered || !strings.Contains(stuck.How, "has to be restarted") {
		t.Errorf("%v, want one that says what became of the proxy", err)
	}
	if took < limit || took > limit+3*unstuckTime {
		t.Errorf("it took %v, want %v and two tries of %v to bring it back", took, limit, unstuckTime)
	}
	began = time.Now()
	if err := r.Clear(t.Context(), p); !errors.Is(err, ErrStuck) {
		t.Errorf("clear: %v", err)
	}
	if took := time.Since(began); took > 2*unstuckTime {
		t.Errorf("the next try took %v, want one of %v", took, unstuckTime)
	}
	healed.Store(true)
	hangs.Store(false)
	if err := r.Clear(t.Context(), p); err != nil {
		t.Errorf("clear once it answers: %v", err)
	}
	if k := r.knows(p); k != (known{}) {
		t.Errorf("known after it: %+v", k)
	}
}
