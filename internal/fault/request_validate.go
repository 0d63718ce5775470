package fault

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/qdisc"
)

// Bounds of a Request.
const (
	maxRequestHeaders = 16
	maxRequestText    = 1024
	minRequestDelay   = time.Microsecond
)

// Codes are the status codes of gRPC but for OK (grpc/codes, and gRPC's statuscodes.md), each by
// its number less one.
var Codes = []string{
	"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
	"DATA_LOSS", "UNAUTHENTICATED",
}

// Validate returns everything that is wrong with r, each as a *qdisc.FieldError.
func (r Request) Validate() error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	var sum qdisc.Percent
	for _, s := range []struct {
		field string
		share qdisc.Percent
	}{{"error", r.Error}, {"delay", r.Delay}, {"abort", r.Abort}} {
		if !(s.share >= 0 && s.share <= 100) { // NaN too
			refuse(s.field, s.share.String(), "a percentage from 0% to 100%, such as 20%")
			continue
		}
		sum += s.share
	}
	switch {
	case len(errs) > 0:
	case sum == 0:
		refuse("request", "", "a share above 0% of error, delay or abort")
	case sum > 100+1e-9: // what adding them up in binary costs is less
		refuse("request", sum.String(), "at most 100% of error, delay and abort together: one draw decides about each request")
	}
	errs = append(errs, r.validateError()...)
	switch {
	case r.Delay > 0 && (r.Latency < minRequestDelay || r.Latency > MaxTTL):
		refuse("latency", qdisc.FormatDuration(r.Latency), "a time from 1us to "+qdisc.FormatDuration(MaxTTL)+", such as 300ms")
	case r.Delay == 0 && r.Latency != 0:
		refuse("latency", qdisc.FormatDuration(r.Latency), "nothing without a share of delay")
	}
	if r.Jitter < 0 || r.Jitter > r.Latency {
		refuse("jitter", qdisc.FormatDuration(r.Jitter), "a time up to the delay, "+qdisc.FormatDuration(max(0, r.Latency)))
	}
	return errors.Join(append(errs, r.validateSelection()...)...)
}

func (r Request) validateError() []error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	switch {
	case r.Error == 0 && r.Status != 0:
		refuse("status", strconv.Itoa(r.Status), "nothing without a share of error")
	case r.Status != 0 && (r.Status < 400 || r.Status > 599):
		refuse("status", strconv.Itoa(r.Status), "a status from 400 to 599, such as 503")
	case r.Error > 0 && r.Status == 0 && r.Code == "":
		refuse("status", "", "a status from 400 to 599, such as 503; or a code of gRPC")
	}
	switch {
	case r.Error == 0 && r.Code != "":
		refuse("code", r.Code, "nothing without a share of error")
	case r.Code != "" && !slices.Contains(Codes, r.Code):
		refuse("code", r.Code, "a status code of gRPC: "+strings.Join(Codes, ", "))
	}
	told := func(field string, t, step time.Duration, beside bool, what string) {
		switch {
		case t == 0:
		case !beside:
			refuse(field, qdisc.FormatDuration(t), "nothing without "+what)
		case t < step || t > MaxTTL || t%step != 0:
			refuse(field, qdisc.FormatDuration(t), fmt.Sprintf("a multiple of %s up to %s", qdisc.FormatDuration(step), qdisc.FormatDuration(MaxTTL)))
		}
	}
	told("retry_after", r.RetryAfter, time.Second, r.Status != 0, "a status")
	told("pushback", r.Pushback, time.Millisecond, r.Code != "", "a code")
	return errs
}

func (r Request) validateSelection() []error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	if r.Method != "" && (len(r.Method) > 32 || strings.ContainsFunc(r.Method, notInToken) || r.Method != strings.ToUpper(r.Method)) {
		refuse("method", r.Method, "a method of HTTP in capitals, such as GET")
	}
	if r.Path != "" && (len(r.Path) > maxRequestText || r.Path[0] != '/' && r.Path[0] != '*' || strings.ContainsFunc(r.Path, notPrintable) || strings.ContainsAny(r.Path, "?#")) {
		refuse("path", r.Path, "a path without a query, in which * is any text, such as /pay/* or /shop.Cart/Add")
	}
	if len(r.Headers) > maxRequestHeaders {
		refuse("header", "", fmt.Sprintf("at most %d", maxRequestHeaders))
	}
	seen := map[string]bool{}
	for _, h := range r.Headers {
		switch name := strings.ToLower(h.Name); {
		case h.Name == "" || len(h.Name) > maxRequestText || strings.ContainsFunc(h.Name, notInToken):
			refuse("header", h.Name, "NAME=VALUE with the name of a header field, such as x-tenant=a")
		case len(h.Value) > maxRequestText || strings.ContainsFunc(h.Value, func(c rune) bool { return c != '\t' && notPrintable(c) }):
			refuse("header", h.Name, "a value of printable characters, at most 1024 bytes")
		case seen[name]:
			refuse("header", h.Name, "each name once")
		default:
			seen[name] = true
		}
	}
	return errs
}

// notInToken is of RFC 9110, section 5.6.2.
func notInToken(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
}

func notPrintable(c rune) bool { return c < ' ' || c == 0x7f }

func (s Spec) validateRequest() []error {
	var errs []error
	if s.Engine != "" && s.Engine != Application {
		errs = append(errs, &qdisc.FieldError{Field: "engine", Value: string(s.Engine), Want: "application for requests, or none"})
	}
	if s.Direction != "" && s.Direction != To {
		errs = append(errs, &qdisc.FieldError{Field: "direction", Value: string(s.Direction), Want: "to or nothing: requests go to the target"})
	}
	switch {
	case s.Packet != nil, s.Schedule != nil, s.Content != nil, len(s.Toxics) > 0:
		errs = append(errs, &qdisc.FieldError{Field: "fault", Want: "a fault of requests alone, or one of packets or toxics, not several"})
	}
	return append(errs, s.Request.Validate())
}
