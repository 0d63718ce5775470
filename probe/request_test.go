package probe

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRequestDefaults(t *testing.T) {
	want := Request{Kind: "pg", Target: "pg", Layer: "direct", Count: 200, Concurrency: 4, Pace: 60 * time.Millisecond, Timeout: 5 * time.Second}
	if d := cmp.Diff(want, Request{Target: "pg"}.WithDefaults()); d != "" {
		t.Errorf("defaults (-want +got):\n%s", d)
	}
	given := Request{Kind: "x", Target: "t", Layer: "proxy", Count: 1, Concurrency: 2, Pace: NoPace, Timeout: time.Second}
	if d := cmp.Diff(given, given.WithDefaults()); d != "" {
		t.Errorf("given values changed (-want +got):\n%s", d)
	}
}

func TestRequestValidate(t *testing.T) {
	tests := []struct {
		name string
		r    Request
		want string
	}{
		{"zero", Request{}, ""},
		{"least", Request{Count: 1, Concurrency: 1, Timeout: time.Millisecond}, ""},
		{"most", Request{Count: 1_000_000, Concurrency: 1000, Timeout: 10 * time.Minute}, ""},
		{"kind", Request{Kind: "http"}, `kind "http": want pg`},
		{"layer", Request{Layer: "packet"}, `layer "packet": want direct or proxy`},
		{"negative count", Request{Count: -1}, `count "-1": want a number from 1 to 1000000`},
		{"count", Request{Count: 1_000_001}, `count "1000001": want a number from 1 to 1000000`},
		{"all at once", Request{Concurrency: 1001, Timeout: time.Microsecond},
			"concurrency \"1001\": want a number from 1 to 1000\ntimeout \"1µs\": want a duration from 1ms to 10m, such as 5s"},
		{"timeout", Request{Timeout: 11 * time.Minute}, `timeout "11m0s": want a duration from 1ms to 10m, such as 5s`},
		{"pace", Request{Pace: -2}, `pace "-2ns": want a duration from 0s to 1m, such as 60ms`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.r.Validate()
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("error %q, want %q", got, test.want)
			}
			if err != nil && !errors.Is(err, ErrRequest) {
				t.Errorf("%v is no ErrRequest", err)
			}
		})
	}
}
