package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"netemd/internal/access"
	"netemd/internal/audit"
	"netemd/internal/config"
	"netemd/qdisc"
)

// Check returns what this host does not have of what a sound configuration names: users,
// groups, and a folder for the audit log. Each is a *qdisc.FieldError with its key. It changes
// nothing; New refuses the same.
func Check(c config.Config) error {
	_, err := access.New(c.Allow)
	return errors.Join(err, checkAudit(c.Audit))
}

// checkAudit says what is wrong with the place of the audit log. Its folder is not made: a
// path with a mistake in it would be a log that nobody finds.
func checkAudit(c config.Audit) error {
	if c.Path == "" {
		return nil
	}
	err := audit.Check(c.Path)
	if err == nil {
		err = audit.Check(audit.RefusedPath(c.Path))
	}
	if err == nil || errors.Is(err, unix.EACCES) { // whoever checks is not root, and may not look
		return nil
	}
	want := "a file in a folder of root's in which nobody else may write"
	if errors.Is(err, fs.ErrNotExist) {
		want = fmt.Sprintf("a file in a folder that exists: mkdir -p -m 750 %s", filepath.Dir(c.Path))
	}
	return &qdisc.FieldError{Field: "audit.path", Value: c.Path, Why: "is of no use (" + err.Error() + ")", Want: want}
}
