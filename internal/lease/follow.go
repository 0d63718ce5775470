package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
)

// ContentFollower is a ContentEngine whose logs can be read on from where one was.
type ContentFollower interface {
	// ContentSince returns what ContentLog would, of the records only those behind from,
	// without waiting for any; where that ends; and what is closed when more has come.
	ContentSince(ctx context.Context, p target.Place, r content.Rule, from content.Cursor) (
		log content.Log, next content.Cursor, more <-chan struct{}, err error)
}

const (
	// MaxFollowers bounds who follows packets at a time, of all faults; OwnerShare of them
	// may be of one owner. Each may have content.MaxRecords of its own at once.
	MaxFollowers = 16
	// followEvery is how often a follower looks whether the fault has ended or moved;
	// records wake it.
	followEvery = 200 * time.Millisecond
	// followPause is how long records are gathered when they come without a pause.
	followPause = 20 * time.Millisecond
)

// FollowPackets calls send with what the rule of a fault did and does, until the fault
// ends, ctx does, or send fails: each record once, in the order in which they came, and
// always with the totals so far. What is no longer kept when it is to be sent is counted
// as skipped. owner is the Whose of who asks. The error is fault.ErrBusy when there are
// MaxFollowers already, or his share of them, and else as that of Packets.
func (m *Manager) FollowPackets(ctx context.Context, id, owner string, send func(content.Log) error) error {
	log, live, err := m.Packets(ctx, id)
	if err != nil {
		return err
	}
	if !live {
		return send(log)
	}
	engine, ok := able[ContentFollower](m.cfg.Engines[fault.EBPF])
	if !ok {
		return fmt.Errorf("packets: the engine cannot be followed: %w", errors.ErrUnsupported)
	}
	if err := m.enterFollower(owner); err != nil {
		return err
	}
	defer m.leaveFollower(owner)
	f := follower{m: m, engine: engine, id: id, at: map[string]*followed{}}
	return f.run(ctx, send)
}

func (m *Manager) enterFollower(owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, share := 0, OwnerShare(MaxFollowers)
	for _, n := range m.followers {
		all += n
	}
	switch {
	case all >= MaxFollowers:
		return fmt.Errorf("packets: %w: %d follow packets already, and at most %d can at a time", fault.ErrBusy, all, MaxFollowers)
	case m.followers[owner] >= share:
		return fmt.Errorf("packets: %w: %d of the same owner follow packets already, and at most %d of one can at a time", fault.ErrBusy, m.followers[owner], share)
	}
	m.followers[owner]++
	return nil
}

func (m *Manager) leaveFollower(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.followers[owner]--; m.followers[owner] == 0 {
		delete(m.followers, owner)
	}
}

// follower reads the logs of one fault.
type follower struct {
	m      *Manager
	engine ContentFollower
	id     string
	// at are the slots where the fault is or was, by their keys, and order the keys.
	at    map[string]*followed
	order []string
	// left is what it had done at places that it had left before it was followed.
	left content.Log
	// told counts the records that were sent or skipped.
	told uint64
}

// followed is how far one slot's log was read.
type followed struct {
	slot slot
	read content.Cursor
	// totals are the log without records; nil while there is none.
	totals *content.Log
	more   <-chan struct{}
}

func (f *follower) run(ctx context.Context, send func(content.Log) error) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var before content.Log
	for first := true; ; first = false {
		// What is read behind this look is whole when the fault has ended by then.
		live := f.look()
		log, err := f.read(ctx)
		if err != nil {
			return err
		}
		f.left.Records = nil // told once
		if !live {
			f.finish(&log)
		}
		if first || len(log.Records)+int(log.Skipped) > 0 || log.Missed != before.Missed || log.Forgotten != before.Forgotten {
			if err := send(log); err != nil {
				return err
			}
			f.told += uint64(len(log.Records)) + log.Skipped
		}
		log.Records = nil
		before = log
		if !live {
			return nil
		}
		if err := f.wait(ctx, tick.C); err != nil {
			return err
		}
	}
}

// look finds where the fault is now, and whether it is still held.
func (f *follower) look() bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	h := f.m.held[f.id]
	if h == nil {
		return false
	}
	if f.order == nil {
		f.left = h.left
	}
	for _, s := range h.slots {
		if s.rule != nil && f.at[s.key] == nil {
			f.at[s.key] = &followed{slot: s}
			f.order = append(f.order, s.key)
		}
	}
	return true
}

// read returns what is new at all slots, with the totals.
func (f *follower) read(ctx context.Context) (content.Log, error) {
	logs := []content.Log{f.left}
	for _, key := range f.order {
		at := f.at[key]
		log, next, more, err := f.engine.ContentSince(ctx, at.slot.place, *at.slot.rule, at.read)
		switch {
		case errors.Is(err, fs.ErrNotExist): // forgotten; its totals stand
			log, more = content.Log{}, nil
			if at.totals != nil {
				log = *at.totals
			}
		case err != nil:
			return content.Log{}, fmt.Errorf("packets: %w", err)
		default:
			at.read = next
			totals := log
			totals.Records, totals.Skipped = nil, 0
			at.totals = &totals
		}
		at.more = more
		logs = append(logs, log)
	}
	all := content.Log{}
	for _, l := range logs {
		all = add(all, l)
	}
	return all, nil
}

// add puts two logs together, and keeps every record.
func add(a, b content.Log) content.Log {
	both := content.Log{
		Records: append(a.Records, b.Records...), Chosen: a.Chosen + b.Chosen, Missed: a.Missed + b.Missed,
		Skipped: a.Skipped + b.Skipped, Forgotten: a.Forgotten + b.Forgotten,
	}
	if len(a.Records) > 0 && len(b.Records) > 0 {
		slices.SortStableFunc(both.Records, content.Record.Compare)
	}
	return both
}

// finish counts as skipped what the log that was kept at the end has, and was neither
// told nor is in the last part.
func (f *follower) finish(last *content.Log) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	i := slices.IndexFunc(f.m.ended, func(e ended) bool { return e.id == f.id })
	if i < 0 {
		return
	}
	kept := f.m.ended[i].log
	last.Chosen, last.Missed = max(last.Chosen, kept.Chosen), max(last.Missed, kept.Missed)
	known := f.told + uint64(len(last.Records)) + last.Skipped + last.Missed
	last.Skipped += last.Chosen - min(last.Chosen, known)
}

// wait returns when a record has come, or it is time to look.
func (f *follower) wait(ctx context.Context, tick <-chan time.Time) error {
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(tick)},
	}
	for _, at := range f.at {
		if at.more != nil {
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(at.more)})
		}
	}
	if which, _, _ := reflect.Select(cases); which >= 2 {
		pause := time.NewTimer(followPause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
