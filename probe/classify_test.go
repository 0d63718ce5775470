package probe

import (
	"context"
	"io"
	"os"
	"testing"
)

func TestClassify(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want Class
	}{
		{"none", nil, OK},
		{"context", context.DeadlineExceeded, Timeout},
		{"cancelled", context.Canceled, Other},
		{"file deadline", os.ErrDeadlineExceeded, Timeout},
		{"eof", io.EOF, EOF},
		{"unexpected eof", io.ErrUnexpectedEOF, EOF},
		{"timeout before the closed socket that it caused", &ProtocolError{Err: os.ErrDeadlineExceeded}, Timeout},
		{"protocol", &ProtocolError{Err: os.ErrInvalid}, Protocol},
		{"anything else", os.ErrInvalid, Other},
	}
	for _, test := range tests {
		if got := Classify(test.err); got != test.want {
			t.Errorf("%s: class %q, want %q", test.name, got, test.want)
		}
	}
}
