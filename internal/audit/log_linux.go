package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/monotonic"
)

// Config says where the log is and how much of it stays.
type Config struct {
	// Path is the file; rotated ones are Path.1, the newest, to Path.Keep.
	Path string
	// MaxBytes is the size at which it is rotated.
	MaxBytes int64
	Keep     int
}

// mode lets the file's group read it; root's group, unless the administrator gave another
// one to the folder with its set-group-ID bit.
const mode = 0o640

// Log appends records to a file. It is safe for concurrent use. A nil Log writes nothing.
//
// It is not lumberjack, which follows a symbolic link at its path and cuts the file off
// that it finds when it rotates: both would let who may write in the folder choose what
// root overwrites.
type Log struct {
	cfg Config

	mu   sync.Mutex
	file *os.File
	size int64
}

// Open opens the log, and makes the file where it is missing. It refuses what Check does.
func Open(cfg Config) (*Log, error) {
	if err := Check(cfg.Path); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l := &Log{cfg: cfg}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return l, nil
}

// Check looks whether a log can be at path, and changes nothing. The error matches
// fs.ErrNotExist when there is no folder for it, fs.ErrPermission when others than root may
// write in the folder, and names the path when there is a symbolic link or no regular file.
func Check(path string) error {
	dir := filepath.Dir(path)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s: must belong to root and be writable by nobody else: %w", dir, fs.ErrPermission)
	}
	switch there, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case there.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%s: a symbolic link is not followed", path)
	case !there.Mode().IsRegular():
		return fmt.Errorf("%s: is no regular file", path)
	}
	return nil
}

// open opens the file at the path, whatever was open before. The caller holds the lock.
func (l *Log) open() error {
	f, err := os.OpenFile(l.cfg.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%w: a symbolic link is not followed", err)
	}
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: is no regular file", l.cfg.Path)
	}
	if err == nil {
		err = f.Chmod(mode) // the umask had its say
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.size = f, st.Size()
	return nil
}

// Write appends a record, whole or not at all as far as the disk has room. Its times are
// now. The record has been handed to the kernel when it returns.
func (l *Log) Write(r Record) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Time, r.Monotonic = time.Now().UTC(), monotonic.Now() // under the lock: records stand in their order
	line, err := r.line()
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if l.file == nil {
		return fmt.Errorf("audit log: %w", fs.ErrClosed)
	}
	if err := l.follow(); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	var rotated error
	if l.size > 0 && l.size+int64(len(line)) > l.cfg.MaxBytes {
		rotated = l.rotate() // when it fails, the file grows: better than to lose a record
	}
	n, err := l.file.Write(line)
	if n > 0 && n < len(line) { // a line that was torn takes the next one with it
		if cut := l.file.Truncate(l.size); cut == nil {
			n = 0
		}
	}
	l.size += int64(n)
	if err := errors.Join(err, rotated); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// follow opens the path anew when somebody else, such as logrotate, took the file away.
func (l *Log) follow() error {
	there, err := os.Lstat(l.cfg.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mine, mineErr := l.file.Stat()
	if err == nil && mineErr == nil && os.SameFile(there, mine) {
		return nil
	}
	return l.open()
}

// rotate makes the file Path.1 and those before it one older each; what is older than Keep
// goes.
func (l *Log) rotate() error {
	old := func(i int) string { return l.cfg.Path + "." + strconv.Itoa(i) }
	if l.cfg.Keep == 0 {
		if err := os.Remove(l.cfg.Path); err != nil {
			return err
		}
		return l.open()
	}
	for i := l.cfg.Keep - 1; i > 0; i-- {
		if err := os.Rename(old(i), old(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.cfg.Path, old(1)); err != nil {
		return err
	}
	l.prune()
	return l.open()
}

// prune removes what a larger Keep of before has left.
func (l *Log) prune() {
	names, _ := filepath.Glob(globEscape(l.cfg.Path) + ".*")
	for _, name := range names {
		if n, err := strconv.Atoi(strings.TrimPrefix(name, l.cfg.Path+".")); err == nil && n > l.cfg.Keep {
			_ = os.Remove(name)
		}
	}
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// Close closes the file. It is safe to call twice, and on a nil Log.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
