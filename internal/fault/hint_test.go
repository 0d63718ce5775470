package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestHints(t *testing.T) {
	err := WithHint(fmt.Errorf("socket: %w", fs.ErrPermission), "run as root")
	if !errors.Is(err, fs.ErrPermission) || err.Error() != "socket: permission denied" || HintOf(err) != "run as root" {
		t.Errorf("%v, hint %q", err, HintOf(err))
	}
	for _, tt := range []struct {
		err  error
		hint string
		want string
	}{
		{nil, "a hint", ""},
		{fs.ErrExist, "", ""},
		{fmt.Errorf("apply: %w", err), "another", "run as root"},
	} {
		if got := WithHint(tt.err, tt.hint); !errors.Is(got, tt.err) || HintOf(got) != tt.want {
			t.Errorf("%v with %q: %v, hint %q, want %q", tt.err, tt.hint, got, HintOf(got), tt.want)
		}
	}
}
