package http

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"netemd/probe"
)

// TestDigest: one wrong byte of an answer is an error, where the answer says what it should be.
func TestDigest(t *testing.T) {
	sum := sha256.Sum256([]byte("right"))
	is := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	for _, c := range []struct {
		digest, body string
		class        probe.Class
	}{
		{is, "right", probe.OK},
		{is, "righT", probe.Protocol},
		{is, "righ", probe.Protocol},
		{"md5=:aGFsbG8=:, " + is, "wrong", probe.Protocol},
		{"", "wrong", probe.OK},
		{"sha-256=:no base64:", "wrong", probe.OK}, // it says nothing
		{"md5=:aGFsbG8=:", "wrong", probe.OK},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Digest", c.digest)
			_, _ = w.Write([]byte(c.body))
		}))
		p := &Probe{Address: netip.MustParseAddrPort(strings.TrimPrefix(s.URL, "http://"))}
		if got := p.Call(t.Context(), 0); got.Class != c.class || got.Bytes != int64(len(c.body)) {
			t.Errorf("%+v: %s of %d bytes (%s)", c, got.Class, got.Bytes, got.Error)
		}
		_ = p.Close()
		s.Close()
	}
}
