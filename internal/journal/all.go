package journal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"netemd/internal/fault"
	"netemd/internal/monotonic"
	"netemd/internal/target"
)

// entryOf is what becomes a record.
type entryOf struct {
	step step
	id   string
	data data
}

// records writes records at once, all or none.
func (j *Journal) records(all ...entryOf) error {
	records, lines := make([]record, len(all)), make([][]byte, len(all))
	for i, e := range all {
		records[i] = record{
			Version: version, Number: j.state.last + 1 + uint64(i), Time: time.Now().Round(0), Monotonic: monotonic.Now(), Boot: j.state.boot,
			Step: e.step, ID: e.id, Data: e.data,
		}
		var err error
		if lines[i], err = records[i].line(); err != nil {
			return err
		}
	}
	if err := j.append(slices.Concat(lines...)); err != nil {
		if j.torn { // some of them may be there, with their numbers
			j.state.last += uint64(len(all))
		}
		return err
	}
	for i, r := range records {
		if err := j.state.add(r, lines[i][:len(lines[i])-1]); err != nil {
			return err
		}
	}
	return nil
}

// IntendAll is Intend of each fault at the places of the same index, in one write: all are
// recorded or none.
func (j *Journal) IntendAll(_ context.Context, faults []fault.Fault, places [][]target.Place) error {
	all := make([]entryOf, len(faults))
	for i, f := range faults {
		all[i] = entryOf{stepIntend, f.ID, data{Fault: store(f, time.Now(), monotonic.Now()), Places: placesOf(places[i])}}
	}
	return j.writeAll(all)
}

// HoldAll is Hold of each fault, all or none.
func (j *Journal) HoldAll(_ context.Context, faults []fault.Fault) error {
	all := make([]entryOf, len(faults))
	for i, f := range faults {
		all[i] = entryOf{stepHold, f.ID, data{Fault: store(f, time.Now(), monotonic.Now())}}
	}
	return j.writeAll(all)
}

func (j *Journal) writeAll(all []entryOf) error {
	if len(all) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.prepare()
	if err == nil {
		err = j.records(all...)
	}
	if err != nil {
		return fmt.Errorf("journal: %s %d faults from %s: %w", all[0].step, len(all), all[0].id, err)
	}
	return nil
}
