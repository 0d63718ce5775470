package child

import (
	"fmt"
	"os"
	"syscall"
)

// userVariable names the environment variable that says whom a child becomes.
const userVariable = "NETEMD_CHILD_USER"

// exitUser is the exit code of a child that could not become its user.
const exitUser = 4

// UserVariable is an entry of a child's environment by which it becomes that user, of
// that group alone, before its main. It does so by itself because the file of its
// program may be one that only root can execute.
func UserVariable(uid, gid uint32) string {
	return fmt.Sprintf("%s=%d:%d", userVariable, uid, gid)
}

// becomeUser is BecomeUser if the environment says so.
func becomeUser() error {
	text, ok := os.LookupEnv(userVariable)
	if !ok {
		return nil
	}
	_ = os.Unsetenv(userVariable)
	return BecomeUser(text)
}

// BecomeUser gives up root's rights for those of "UID:GID", of that group alone, on all
// threads and for good. It needs root.
func BecomeUser(user string) error {
	var uid, gid int
	if n, err := fmt.Sscanf(user, "%d:%d", &uid, &gid); n != 2 || err != nil {
		return fmt.Errorf("become user %q: want UID:GID", user)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"setgroups", func() error { return syscall.Setgroups(nil) }},
		{"setgid", func() error { return syscall.Setgid(gid) }},
		{"setuid", func() error { return syscall.Setuid(uid) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("become uid %d: %s: %w", uid, step.what, err)
		}
	}
	return nil
}
