package fault

import (
	"slices"
	"strconv"
	"strings"

	"netemd/qdisc"
)

// The forms of the parts of a Request as one text each.
const (
	wantError = "a share and a status, a code of gRPC or both, such as \"20% 503\" or \"20% UNAVAILABLE\""
	wantDelay = "a share and a time, such as \"20% 300ms\" or \"20% 300ms jitter=50ms\""
	wantAbort = "a share, such as 5%"
)

// ParseError reads the error of r, "20% 503", "20% UNAVAILABLE" or both. The error is a
// *qdisc.FieldError without a field.
func (r *Request) ParseError(text string) error {
	words := strings.Fields(text)
	bad := &qdisc.FieldError{Value: text, Want: wantError}
	if len(words) < 2 || len(words) > 3 {
		return bad
	}
	share, err := qdisc.ParsePercent(words[0])
	if err != nil || share == 0 {
		return bad
	}
	r.Error, r.Status, r.Code = share, 0, ""
	for _, w := range words[1:] {
		if n, err := strconv.Atoi(w); err == nil && r.Status == 0 {
			r.Status = n
			continue
		}
		if !slices.Contains(Codes, w) || r.Code != "" {
			return bad
		}
		r.Code = w
	}
	return nil
}

// ParseDelay reads the delay of r, "20% 300ms", with "jitter=50ms" behind it if need be. The
// error is a *qdisc.FieldError without a field.
func (r *Request) ParseDelay(text string) error {
	words := strings.Fields(text)
	bad := &qdisc.FieldError{Value: text, Want: wantDelay}
	if len(words) < 2 || len(words) > 3 {
		return bad
	}
	share, err := qdisc.ParsePercent(words[0])
	if err != nil || share == 0 {
		return bad
	}
	latency, err := qdisc.ParseDuration(words[1])
	if err != nil {
		return bad
	}
	r.Delay, r.Latency, r.Jitter = share, latency, 0
	if len(words) == 3 {
		value, ok := strings.CutPrefix(words[2], "jitter=")
		if !ok {
			return bad
		}
		if r.Jitter, err = qdisc.ParseDuration(value); err != nil {
			return bad
		}
	}
	return nil
}

// ParseAbort reads the share that is reset. The error is a *qdisc.FieldError without a field.
func (r *Request) ParseAbort(text string) error {
	share, err := qdisc.ParsePercent(text)
	if err != nil || share == 0 {
		return &qdisc.FieldError{Value: text, Want: wantAbort}
	}
	r.Abort = share
	return nil
}

// ParseHeader reads NAME=VALUE. The error is a *qdisc.FieldError without a field.
func ParseHeader(text string) (Header, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return Header{}, &qdisc.FieldError{Value: text, Want: "NAME=VALUE, such as x-tenant=a"}
	}
	return Header{Name: name, Value: value}, nil
}
