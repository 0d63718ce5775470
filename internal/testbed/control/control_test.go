package control

import (
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type counting struct {
	mu   sync.Mutex
	hits int64
	text string
}

func (c *counting) Counters() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]int64{"hits": c.hits}
}

func (c *counting) Settings() []byte { return []byte(c.text) }

func (c *counting) Set(text []byte) error {
	if string(text) == "bad" {
		return errors.New("status: \"bad\" is not valid, want a number")
	}
	c.text = string(text)
	return nil
}

func (c *counting) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits = 0
}

func TestControl(t *testing.T) {
	path := filepath.Join(t.TempDir(), Socket)
	client := Client{Path: path}
	if _, err := client.State(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a server: %v", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	c := &counting{hits: 7}
	go func() { ended <- Serve(t.Context(), l, c) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if s, err := client.Set(t.Context(), []byte("status: 503\n")); err != nil || !cmp.Equal(s, State{map[string]int64{"hits": 7}, "status: 503\n"}) {
		t.Errorf("set: %v %v", s, err)
	}
	var refused *RefusedError
	if _, err := client.Set(t.Context(), []byte("bad")); !errors.As(err, &refused) || refused.Text != `status: "bad" is not valid, want a number` {
		t.Errorf("a mistake: %v", err)
	}
	if s, err := client.Reset(t.Context()); err != nil || s.Counters["hits"] != 0 || s.Settings != "status: 503\n" {
		t.Errorf("reset: %v %v", s, err)
	}
	if s, err := client.State(t.Context()); err != nil || s.Counters["hits"] != 0 {
		t.Errorf("state: %v %v", s, err)
	}
}
