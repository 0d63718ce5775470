package postgres

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"netemd/probe"
)

// long is what a stub answers to the queries of TestLongAnswers: rows of 64 KiB for 256 MiB,
// or one row that is longer than any may be.
func long(query string) (row []byte, rows int) {
	switch query {
	case "many rows":
		return make([]byte, 64<<10), 4096
	case "many short rows":
		return make([]byte, 8), 10_000
	case "one long row":
		return make([]byte, MaxAnswer+1), 1
	}
	return nil, 0
}

// An answer that is longer than any may be ends the call and its connection, and none of it
// is kept.
func TestLongAnswers(t *testing.T) {
	srv := serveStub(t, nil)
	for _, test := range []struct {
		query, want string
		class       probe.Class
	}{
		{"many rows", "longer than 16 MiB", probe.Protocol},
		{"one long row", "", probe.Protocol},
		{"many short rows", "not one row", probe.Other},
	} {
		p := &Probe{Address: srv.addr, User: "u", Database: "d", Mode: Query, Query: test.query, Pool: 1}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s := p.Call(ctx, 0)
		runtime.ReadMemStats(&after)
		cancel()
		if s.Class != test.class || !strings.Contains(s.Error, test.want) {
			t.Errorf("%s: %s %q, want %s and %q", test.query, s.Class, s.Error, test.class, test.want)
		}
		// the stub's own buffers are in it, too: those of a whole answer would be 256 MiB
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 4*MaxAnswer {
			t.Errorf("%s: %d MiB were allocated", test.query, grown>>20)
		}
		if n := len(p.pool.free); n != 0 {
			t.Errorf("%s: %d connections are kept", test.query, n)
		}
		_ = p.Close()
	}
}

// The server is told to refuse what a query of one's own would change, unless it shall.
func TestReadOnly(t *testing.T) {
	srv := serveStub(t, nil)
	for _, test := range []struct {
		query string
		write bool
		want  string
	}{
		{"", false, ""},
		{DefaultQuery, false, ""},
		{"select f()", false, "on"},
		{"select f()", true, ""},
	} {
		p := &Probe{Address: srv.addr, User: "u", Database: "d", Mode: Query, Query: test.query, Write: test.write}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		s := p.Call(ctx, 0)
		cancel()
		srv.mu.Lock()
		got := srv.startup["default_transaction_read_only"]
		srv.mu.Unlock()
		if s.Class != probe.OK || got != test.want {
			t.Errorf("%q, write %t: %s %q, read-only %q, want %q", test.query, test.write, s.Class, s.Error, got, test.want)
		}
		if said := p.Describe()["transactions"]; (said == "read-only") != (test.want == "on") {
			t.Errorf("%q, write %t: described as %q", test.query, test.write, said)
		}
	}
}
