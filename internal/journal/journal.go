package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"netemd/internal/fault"
	"netemd/internal/monotonic"
	"netemd/internal/target"
)

// Name is the file's, in the state folder.
const Name = "journal"

// Sizes in bytes.
const (
	// compactAt is the size from which on ended faults are left out again, once they make
	// up more than half of the file.
	compactAt = 256 << 10
	// maxFile is the most that is read, and written while it cannot be made smaller.
	maxFile = 64 << 20
)

// Journal is the file of one life. It is safe for concurrent use.
type Journal struct {
	path string

	mu    sync.Mutex
	file  *os.File
	state *state
	size  int64
	// next is the size at which compacting is tried.
	next int64
	// torn says that the file ends with a part of a record that could not be cut off.
	torn bool
	// unsaid are the ends that found no room in the file: they come before whatever is
	// written next, unless it is written anew without their faults.
	unsaid []end
}

// end is that nothing is left of a fault.
type end struct {
	id    string
	state fault.State
}

// Open reads what the lives before left in dir, and begins a new one: what still means
// something is written to a new file, which takes the place of the old. Damage is passed
// over and counted. Nobody else may have it open, which the lock of the state folder says.
// Where the new file cannot be written, Last is still what was read.
func Open(dir string) (*Journal, Last, error) {
	path := filepath.Join(dir, Name)
	text, err := readFile(path)
	if err != nil {
		return nil, Last{}, fmt.Errorf("journal: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return nil, Last{}, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{path: path, state: newState(boot)}
	j.state.read(text)
	last := j.state.told()
	if err := j.compact(); err != nil {
		return nil, last, fmt.Errorf("journal: %w", err)
	}
	if err := j.write(stepOpen, "", data{PID: os.Getpid()}); err != nil {
		return nil, last, errors.Join(err, j.Close())
	}
	return j, last, nil
}

// readFile returns the file's content, nothing for none. What is no file is not followed.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file but %s", path, st.Mode().Type())
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// compact writes what is live to a new file and goes on there. The caller holds the lock,
// or is the only one. After an error the old file stands.
func (j *Journal) compact() error {
	lines := j.state.live()
	var text []byte
	for _, l := range lines {
		text = append(append(text, l.line...), '\n')
	}
	temporary := j.path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = os.Rename(temporary, j.path)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(temporary))
	}
	if j.file != nil {
		_ = j.file.Close() // nothing of it is needed any more
	}
	j.file, j.size, j.torn, j.unsaid = f, int64(len(text)), false, nil
	j.next = max(compactAt, 2*j.size)
	return nil
}

// write adds a record.
func (j *Journal) write(s step, id string, d data) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.add(s, id, d)
	if err != nil {
		return fmt.Errorf("journal: %s %s: %w", s, id, err)
	}
	return nil
}

func (j *Journal) add(s step, id string, d data) error {
	if err := j.prepare(); err != nil {
		return err
	}
	return j.record(s, id, d)
}

// prepare makes the file one to which records can be added.
func (j *Journal) prepare() error {
	if j.file == nil {
		return fs.ErrClosed
	}
	if j.size >= j.next {
		// Without room for a second file the first one grows on, for a while.
		if err := j.compact(); err != nil {
			j.next += compactAt
			if j.size >= maxFile {
				return err
			}
		}
	}
	return j.catchUp()
}

// catchUp writes what is unsaid.
func (j *Journal) catchUp() error {
	for len(j.unsaid) > 0 {
		if err := j.record(stepEnd, j.unsaid[0].id, data{State: j.unsaid[0].state}); err != nil {
			return err
		}
		j.unsaid = j.unsaid[1:]
	}
	return nil
}

// record writes one record.
func (j *Journal) record(s step, id string, d data) error { return j.records(entryOf{s, id, d}) }

// append writes lines. What is there of lines that could not be written whole is cut
// off again, or ended, so that the next one begins a line.
func (j *Journal) append(line []byte) error {
	if j.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := j.file.Write(line)
	if err == nil {
		j.size, j.torn = j.size+int64(n), false
		return nil
	}
	if n > 0 && j.file.Truncate(j.size) != nil {
		j.size, j.torn = j.size+int64(n), true
	}
	return err
}

// Intend records that a fault is about to change the kernel at places, and no others.
func (j *Journal) Intend(_ context.Context, f fault.Fault, places []target.Place) error {
	return j.write(stepIntend, f.ID, data{Fault: store(f, time.Now(), monotonic.Now()), Places: placesOf(places)})
}

// Hold records that a fault is whole.
func (j *Journal) Hold(_ context.Context, f fault.Fault) error {
	return j.write(stepHold, f.ID, data{Fault: store(f, time.Now(), monotonic.Now())})
}

// End records that nothing is left of a fault, of this life or an earlier one. One that is
// kept stays so, unless it has expired. After an error it is true all the same, and written
// with the next record for which there is room.
func (j *Journal) End(_ context.Context, id string, s fault.State) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.add(stepEnd, id, data{State: s})
	if err == nil {
		return nil
	}
	j.state.end(id, s)
	j.unsaid = append(j.unsaid, end{id, s})
	return fmt.Errorf("journal: %s %s: %w", stepEnd, id, err)
}

// Keep records the faults that the next life is to put back.
func (j *Journal) Keep(_ context.Context, faults []fault.Fault) error {
	for _, f := range faults {
		if err := j.write(stepKept, f.ID, data{Fault: store(f, time.Now(), monotonic.Now())}); err != nil {
			return err
		}
	}
	return nil
}

// Close leaves the file for those who come after. It is safe to call twice.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := j.catchUp()
	err = errors.Join(err, j.file.Close())
	j.file = nil
	return err
}

// Remove closes the journal and removes its file, when nothing is left that anybody has to
// know.
func (j *Journal) Remove() error {
	j.mu.Lock()
	j.unsaid = nil
	j.mu.Unlock()
	err := j.Close()
	if e := os.Remove(j.path); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// Empty reports whether there is no fault in it, neither open nor kept.
func (j *Journal) Empty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.state.open)+len(j.state.kept) == 0
}
