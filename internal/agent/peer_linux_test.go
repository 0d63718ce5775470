package agent

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"
)

// No two who are not the same have one key, also where they are called alike.
func TestPeerKeys(t *testing.T) {
	certificate := func(name string, uris ...string) peerInfo {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: name}}
		for _, u := range uris {
			parsed, err := url.Parse(u)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, parsed)
		}
		return certified(c)
	}
	of := map[string]string{}
	for what, p := range map[string]peerInfo{
		"root":                        {owner: "uid 0 (root)"},
		"a user":                      {uid: 7, owner: "uid 7 (bob)"},
		"a certificate":               certificate("ci"),
		"a user by another name":      certificate("uid 7 (bob)"),
		"a name like a key":           certificate("uid:7"),
		"a URI":                       certificate("", "spiffe://x/ci"),
		"a name like a URI":           certificate("spiffe://x/ci"),
		"a name that is no UTF-8":     certificate("ci\xff"),
		"another that is none either": certificate("ci\xfe"),
		"the one's text":              certificate(`ci\xff`),
		"the replacement":             certificate("ci\ufffd"),
	} {
		if other, taken := of[p.ownerKey()]; taken {
			t.Errorf("%s and %s have one key: %s", what, other, p.ownerKey())
		}
		of[p.ownerKey()] = what
	}
	renamed := peerInfo{uid: 7, owner: "uid 7 (robert)"}
	if of[renamed.ownerKey()] != "a user" {
		t.Errorf("a user that was renamed has the key %s", renamed.ownerKey())
	}
}
