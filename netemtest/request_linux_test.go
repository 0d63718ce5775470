package netemtest_test

import (
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"netemd/internal/testenv"
	"netemd/netemtest"
)

// TestRequest has a fifth of the requests of a client fail, as many as chance allows, and no
// other.
func TestRequest(t *testing.T) {
	testenv.Root(t)
	lab := netemtest.Lab(t, "echo")
	f := netemtest.Request(t, "http", netemtest.RequestSpec{Error: 20, Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Path: "/pay*"})
	transport := &http.Transport{DialContext: lab.Node("client").DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	get := func(path string) *http.Response {
		a, err := c.Get("http://" + lab.HTTPProxy("http") + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, a.Body)
		_ = a.Body.Close()
		return a
	}
	const n = 300
	errors := uint64(0)
	for range n {
		if a := get("/pay/1"); a.StatusCode == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "1" {
			errors++
		} else if a.StatusCode != http.StatusOK {
			t.Errorf("%s with %v", a.Status, a.Header)
		}
		if a := get("/other"); a.StatusCode != http.StatusOK {
			t.Errorf("a path that is not meant: %s", a.Status)
		}
	}
	const z = 3.2905 // 99.9 %, two-sided
	if off := math.Abs(float64(errors)/n - .2); off > z*math.Sqrt(.2*.8/n) {
		t.Errorf("%d errors of %d", errors, n)
	}
	if got := f.Stats(); got.Seen != n || got.Errors != errors || got.Delayed+got.Aborted != 0 {
		t.Errorf("counted %v, and saw %d errors of %d", got, errors, n)
	}
	f.Clear()
	if a := get("/pay/1"); a.StatusCode != http.StatusOK {
		t.Errorf("after its end: %s", a.Status)
	}
}
