package http

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"net/http"
	"strings"

	"netemd/probe"
)

// digest is what an answer says that its body is (Content-Digest of RFC 9530, sha-256), and
// what came. The zero digest checks nothing.
type digest struct {
	want []byte
	came hash.Hash
}

func digestOf(h http.Header) digest {
	for field := range strings.SplitSeq(strings.Join(h.Values("Content-Digest"), ","), ",") {
		text, ok := strings.CutPrefix(strings.TrimSpace(field), "sha-256=:")
		if !ok {
			continue
		}
		want, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, ":"))
		if err == nil && len(want) == sha256.Size {
			return digest{want, sha256.New()}
		}
	}
	return digest{}
}

func (d digest) write(b []byte) {
	if d.came != nil {
		d.came.Write(b) // it never fails
	}
}

// check is asked for once all has come.
func (d digest) check() error {
	if d.came == nil || bytes.Equal(d.came.Sum(nil), d.want) {
		return nil
	}
	return &probe.ClassError{Class: probe.Protocol, Err: errDigest}
}

var errDigest = errors.New("http: the answer's body is not what its Content-Digest says")
