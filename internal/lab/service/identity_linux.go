package service

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Own returns whom this process runs as.
func Own() (Identity, error) {
	groups, err := os.Getgroups()
	id := Identity{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	for _, g := range groups {
		id.Groups = append(id.Groups, uint32(g))
	}
	return id, err
}

// LookUp returns the identity of a user of this host, by name or number, with its
// groups. The error is a user.UnknownUserError for one that there is not.
func LookUp(name string) (Identity, error) {
	u, err := user.Lookup(name)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		if _, bad := strconv.ParseUint(name, 10, 32); bad == nil {
			u, err = user.LookupId(name)
		}
	}
	if err != nil {
		return Identity{}, err
	}
	texts, err := u.GroupIds()
	if err != nil {
		return Identity{}, fmt.Errorf("groups of %s: %w", name, err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	id, errs := Identity{UID: uint32(uid), GID: uint32(gid)}, []error{err1, err2}
	for _, t := range texts {
		g, err := strconv.ParseUint(t, 10, 32)
		id.Groups, errs = append(id.Groups, uint32(g)), append(errs, err)
	}
	return id, errors.Join(errs...)
}

// Home returns the user's name and home folder; the number and "/" where the host does
// not know them.
func (id Identity) Home() (name, home string) {
	text := strconv.FormatUint(uint64(id.UID), 10)
	u, err := user.LookupId(text)
	if err != nil {
		return text, "/"
	}
	if info, err := os.Stat(u.HomeDir); err != nil || !info.IsDir() {
		return u.Username, "/"
	}
	return u.Username, u.HomeDir
}

// Credential is the identity for a new process.
func (id Identity) Credential() *syscall.Credential {
	return &syscall.Credential{Uid: id.UID, Gid: id.GID, Groups: id.Groups}
}

// openAs opens a log for appending with the identity's rights, and makes it if it is
// missing. Whoever names the file must not get at one by the agent's rights that he
// has none to.
func openAs(id Identity, path string) (f *os.File, err error) {
	err = id.as(func() (err error) {
		f, err = openLog(path, 0o640)
		return err
	})
	return f, err
}

// as runs f on a thread with the identity's rights to files.
func (id Identity) as(f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The rights are this thread's alone; it ends with the goroutine that is locked
		// to it and does not let go.
		runtime.LockOSThread()
		var groups unsafe.Pointer
		if len(id.Groups) > 0 {
			groups = unsafe.Pointer(unsafe.SliceData(id.Groups))
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(id.Groups)), uintptr(groups), 0); errno != 0 {
			err = fmt.Errorf("setgroups: %w", errno)
			return
		}
		if err = errors.Join(unix.Setfsgid(int(id.GID)), unix.Setfsuid(int(id.UID))); err != nil {
			return
		}
		err = f()
	}()
	<-done
	return err
}

// openLog opens a regular file for appending. A pipe is not waited for, and a link at
// the end of the path is not followed.
func openLog(path string, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("log %s: is no regular file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
