package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// execute starts argv as execvpe(3) does, with the PATH of attr's environment, and says
// in words what is wrong.
func execute(argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	if len(argv) == 0 || argv[0] == "" {
		return 0, errors.New("no command")
	}
	paths := []string{argv[0]}
	if !strings.Contains(argv[0], "/") {
		paths = paths[:0]
		for _, dir := range filepath.SplitList(variable(attr.Env, "PATH")) {
			if dir != "" {
				paths = append(paths, filepath.Join(dir, argv[0]))
			}
		}
	}
	worst := error(unix.ENOENT)
	for _, path := range paths {
		pid, err = syscall.ForkExec(path, argv, attr)
		switch {
		case err == nil:
			return pid, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
			worst = err // there, and of no use
		}
	}
	return 0, explain(argv[0], attr, worst)
}

// explain says what may be behind the kernel's word. The folder is one of the causes:
// it is entered before the program is looked for, with the same error.
func explain(program string, attr *syscall.ProcAttr, err error) error {
	info, dirErr := statAs(attr.Sys.Credential, attr.Dir)
	if dirErr != nil {
		return fmt.Errorf("folder %s: %w", attr.Dir, err)
	} else if !info.IsDir() {
		return fmt.Errorf("folder %s: %w", attr.Dir, unix.ENOTDIR)
	}
	where := ""
	if !strings.Contains(program, "/") {
		where = " in PATH " + variable(attr.Env, "PATH")
	} else if !filepath.IsAbs(program) {
		where = " in " + attr.Dir
	}
	as := ""
	if c := attr.Sys.Credential; c != nil && errors.Is(err, fs.ErrPermission) {
		as = fmt.Sprintf(" (as uid %d, which must reach the program and its folder and may execute it)", c.Uid)
	}
	return fmt.Errorf("start %s%s: %w%s", program, where, err, as)
}

// statAs looks at a file with the rights of whom a process runs as, nil for this one's: who
// may not enter a folder is not told what is in it.
func statAs(c *syscall.Credential, path string) (info os.FileInfo, err error) {
	if c == nil {
		return os.Stat(path)
	}
	err = Identity{UID: c.Uid, GID: c.Gid, Groups: c.Groups}.as(func() (err error) {
		info, err = os.Stat(path)
		return err
	})
	return info, err
}

// variable returns the last value of a variable.
func variable(env []string, name string) string {
	value := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}
