package journal

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"netemd/internal/fault"
	"netemd/internal/monotonic"
)

// Last is what the lives before left in the journal.
type Last struct {
	// Open are the faults that were intended and did not end, oldest first: the kernel
	// may be changed for them. They stay in the journal until End says that nothing is
	// left.
	Open []Entry
	// Kept are the faults that were handed over, oldest first, with the end of their time
	// as the clock says it now. They stay until the same id is intended, or has expired.
	Kept []fault.Fault
	// Torn is 1 where the last record was cut off in the middle, as by a full file system;
	// Damaged are other lines that are no records. Both are passed over, and gone now.
	Torn, Damaged int
}

// Entry is a fault that did not end.
type Entry struct {
	// Fault is as it was recorded last.
	Fault fault.Fault
	// Held says that it was whole, and acknowledged or about to be.
	Held bool
	// Places are all that it may have changed; none for a fault of a proxy, and where the
	// record of the intent was damaged.
	Places []Place
	// SameBoot is false where the machine was started anew since: nothing of it is left in
	// the kernel then.
	SameBoot bool
	// Time and Monotonic (CLOCK_MONOTONIC, ns) are of its last record.
	Time      time.Time
	Monotonic int64
}

// numbered is a line with its record's number.
type numbered struct {
	number uint64
	line   []byte
}

// entry is what is known of a fault, and the lines that say it.
type entry struct {
	Entry
	first        uint64
	intend, hold numbered
}

// kept is a fault that is handed over.
type kept struct {
	numbered
	fault fault.Fault
}

// state is what all records together say.
type state struct {
	boot          string
	now           time.Time
	monotonic     int64
	last          uint64 // the greatest number
	open          map[string]*entry
	kept          map[string]*kept
	torn, damaged int
}

func newState(boot string) *state {
	return &state{boot: boot, now: time.Now(), monotonic: monotonic.Now(), open: map[string]*entry{}, kept: map[string]*kept{}}
}

// read takes in a whole file.
func (s *state) read(text []byte) {
	for len(text) > 0 {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		r, err := parseLine(line)
		if err == nil {
			err = s.add(r, line)
		}
		switch {
		case err == nil:
		case !whole:
			s.torn++
		default:
			s.damaged++
		}
		text = rest
	}
}

// maxNumber leaves room for all that will ever be written.
const maxNumber = 1 << 62

// add takes in one record, which line is. The error says that it makes no sense.
func (s *state) add(r record, line []byte) error {
	if r.Number <= s.last || r.Number > maxNumber {
		return fmt.Errorf("%w: number %d after %d", errDamaged, r.Number, s.last)
	}
	about := r.Step == stepIntend || r.Step == stepHold || r.Step == stepKept
	if r.Step != stepOpen && r.ID == "" || about && r.Data.Fault == nil {
		return fmt.Errorf("%w: %s of %q", errDamaged, r.Step, r.ID)
	}
	at := numbered{r.Number, line}
	switch r.Step {
	case stepOpen:
	case stepIntend, stepHold:
		e := s.entry(r)
		e.Fault = s.fault(r)
		if r.Step == stepIntend {
			e.Places, e.intend = r.Data.Places, at
		} else {
			e.Held, e.hold = true, at
		}
		delete(s.kept, r.ID)
	case stepEnd:
		s.end(r.ID, r.Data.State)
	case stepKept:
		s.kept[r.ID] = &kept{at, s.fault(r)}
	default:
		return fmt.Errorf("%w: step %q", errDamaged, r.Step)
	}
	s.last = r.Number
	return nil
}

// end forgets a fault; one that is handed over only when its time is over.
func (s *state) end(id string, how fault.State) {
	delete(s.open, id)
	if how == fault.Expired {
		delete(s.kept, id)
	}
}

// entry is the one that r is about, a new one if need be.
func (s *state) entry(r record) *entry {
	e := s.open[r.ID]
	if e == nil {
		e = &entry{first: r.Number}
		s.open[r.ID] = e
	}
	e.SameBoot, e.Time, e.Monotonic = r.Boot == s.boot, r.Time, r.Monotonic
	return e
}

// fault is the one of r.
func (s *state) fault(r record) fault.Fault {
	f := r.Data.Fault.fault(r.Boot == s.boot, s.now, s.monotonic)
	f.ID = r.ID
	return f
}

// live are the lines that still say something, in the order of their numbers.
func (s *state) live() []numbered {
	var all []numbered
	for _, e := range s.open {
		all = append(all, e.intend, e.hold)
	}
	for _, k := range s.kept {
		all = append(all, k.numbered)
	}
	all = slices.DeleteFunc(all, func(n numbered) bool { return n.line == nil })
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	return all
}

// told is s for those who come after.
func (s *state) told() Last {
	l := Last{Torn: s.torn, Damaged: s.damaged}
	for _, e := range slices.SortedFunc(maps.Values(s.open), func(a, b *entry) int { return cmp.Compare(a.first, b.first) }) {
		l.Open = append(l.Open, e.Entry)
	}
	for _, k := range slices.SortedFunc(maps.Values(s.kept), func(a, b *kept) int { return cmp.Compare(a.number, b.number) }) {
		l.Kept = append(l.Kept, k.fault)
	}
	return l
}
