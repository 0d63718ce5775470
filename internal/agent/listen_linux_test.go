package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/internal/config"
	"netemd/internal/testenv"
)

// Where the group is missing nobody gets its permissions: the socket's group is 0 then, in
// which others than root may be.
func TestSocketWithoutItsGroup(t *testing.T) {
	testenv.Root(t)
	for _, tt := range []struct {
		group string
		mode  config.Mode
		want  fs.FileMode
	}{
		{"no-group-of-that-name", 0o660, 0o600},
		{"no-group-of-that-name", 0o666, 0o666}, // the agent looks by itself
		{"root", 0o660, 0o660},
	} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := listen(path, tt.group, tt.mode)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(path)
		if err != nil || st.Mode().Perm() != tt.want {
			t.Errorf("group %s, mode %v: %v, %v, want %v", tt.group, tt.mode, st, err, tt.want)
		}
		_ = l.Close()
	}
}

// The socket is root's alone before it has its group and mode, whatever the umask is, and the
// umask of the process stays what it is.
func TestSocketIsPrivateAtFirst(t *testing.T) {
	before := unix.Umask(0)
	defer unix.Umask(before)
	path := filepath.Join(t.TempDir(), "s")
	l, err := bindSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want a mode of 0600", st, err)
	}
	if now := unix.Umask(0); now != 0 {
		t.Errorf("the umask of the process is %#o afterwards, want 0", now)
	}
}
