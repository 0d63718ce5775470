package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/target"
	"netemd/probe"
	"netemd/qdisc"
)

// domain marks the details of our statuses.
const domain = "netemd"

// errorTable is how errors survive the trip: the first sentinel that an error
// matches gives its code and reason, and the client's error matches it again.
var errorTable = []struct {
	sentinel error
	code     codes.Code
	reason   string
}{
	{probe.ErrRequest, codes.InvalidArgument, "INVALID_PROBE"},
	{qdisc.ErrInvalid, codes.InvalidArgument, "INVALID"},
	{target.ErrUnknown, codes.NotFound, "UNKNOWN_TARGET"},
	{lab.ErrAmbiguous, codes.FailedPrecondition, "AMBIGUOUS_TARGET"},
	{target.ErrVanished, codes.NotFound, "VANISHED_TARGET"},
	{lab.ErrUnknown, codes.NotFound, "UNKNOWN_LAB"},
	{lab.ErrConflict, codes.FailedPrecondition, "LAB_CONFLICT"},
	{fault.ErrConflict, codes.FailedPrecondition, "CONFLICT"},
	{fault.ErrBusy, codes.ResourceExhausted, "BUSY"},
	{errors.ErrUnsupported, codes.Unimplemented, "UNSUPPORTED"},
	{fault.ErrMissed, codes.OutOfRange, "MISSED"},
	{fault.ErrDenied, codes.PermissionDenied, "DENIED"},
	{fault.ErrProtected, codes.PermissionDenied, "PROTECTED"},
	{fs.ErrPermission, codes.PermissionDenied, "PERMISSION"},
	{fs.ErrNotExist, codes.NotFound, "NOT_EXIST"},
	{fs.ErrExist, codes.AlreadyExists, "EXIST"},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE"},
	{context.Canceled, codes.Canceled, "CANCELED"},
}

// Status makes a gRPC status of err; nil stays nil.
func Status(err error) error {
	if err == nil {
		return nil
	}
	code, reason := codes.Unknown, "ERROR"
	for _, e := range errorTable {
		if errors.Is(err, e.sentinel) {
			code, reason = e.code, e.reason
			break
		}
	}
	info := &errdetails.ErrorInfo{Domain: domain, Reason: reason}
	if hint := fault.HintOf(err); hint != "" {
		info.Metadata = map[string]string{"hint": hint}
	}
	s, detailErr := status.New(code, oneLine(err)).WithDetails(info)
	if detailErr != nil {
		return status.Error(code, oneLine(err))
	}
	return s.Err()
}

// oneLine joins the lines of joined errors.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// remoteError is an error of the agent's: its words, and the sentinel that it matches.
type remoteError struct {
	text     string
	sentinel error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.sentinel }

// ErrorOf turns a status that the agent sent into an error that matches the same
// sentinel as the agent's did. Other errors are returned as they are.
func ErrorOf(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	for _, d := range s.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain {
			continue
		}
		e := &remoteError{text: s.Message()}
		for _, row := range errorTable {
			if row.reason == info.GetReason() {
				e.sentinel = row.sentinel
			}
		}
		return fault.WithHint(e, info.GetMetadata()["hint"])
	}
	if s.Code() == codes.DeadlineExceeded { // gRPC's own, without our detail
		return &remoteError{text: s.Message(), sentinel: context.DeadlineExceeded}
	}
	if size, most := 0, 0; s.Code() == codes.ResourceExhausted { // gRPC's own, before the agent sees the call
		if _, err := fmt.Sscanf(s.Message(), "grpc: received message larger than max (%d vs. %d)", &size, &most); err == nil {
			return &remoteError{text: fmt.Sprintf("the request has %d bytes, and the agent takes %d at most (limits.request_bytes of its configuration)", size, most), sentinel: qdisc.ErrInvalid}
		}
	}
	return err
}
