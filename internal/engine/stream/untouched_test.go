package stream

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
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
