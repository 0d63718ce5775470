package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// maxTogether bounds the faults of one ApplyAll, as the entries of any list of a request.
const maxTogether = 4096

// ApplyAll makes several faults, all or none, and returns them in the order of specs. What
// an earlier call with the same RequestID made is returned as it is, as by Apply. None may
// wait for another fault's end. When it fails everything is as it was, and the error is
// fault.Nth of the first that was refused.
//
// It takes each step for all of them, so that each device is looked up once, the journal
// written once, and each place set and read back once.
func (m *Manager) ApplyAll(ctx context.Context, specs []fault.Spec) (faults []fault.Fault, err error) {
	b := &batch{m: m, devices: map[string]target.Target{}, faults: make([]fault.Fault, len(specs))}
	specs = slices.Clone(specs)
	if err := b.check(specs); err != nil {
		return nil, err
	}
	defer func() { b.made(err) }()
	if err := b.claim(ctx, specs); err != nil {
		return nil, err
	}
	if len(b.parts) > 0 {
		if err := b.apply(ctx); err != nil {
			return nil, err
		}
	}
	return b.faults, nil
}

// batch is one ApplyAll. faults are its answers, parts what is to be made of them.
type batch struct {
	m       *Manager
	faults  []fault.Fault
	parts   []*part
	devices map[string]target.Target // by the selector's name
}

// part is one fault of a batch. made ends the claim of its request id.
type part struct {
	*held
	index int
	made  func(id string)
}

// check refuses what cannot be asked for, before anything is done. Of a thousand that have
// the same mistake the first says enough.
func (b *batch) check(specs []fault.Spec) error {
	if n := len(specs); n == 0 || n > maxTogether {
		return &qdisc.FieldError{Field: "faults", Value: fmt.Sprint(n), Want: fmt.Sprintf("1 to %d faults", maxTogether)}
	}
	first := map[string]int{}
	for i, s := range specs {
		checked, err := b.m.check(s, false)
		if s.Wait != 0 {
			err = errors.Join(err, &qdisc.FieldError{Field: "wait", Value: qdisc.FormatDuration(s.Wait), Want: "0s: faults that are made together do not wait"})
		}
		if k, twice := first[requestKey(s)]; twice && s.RequestID != "" {
			err = errors.Join(err, &qdisc.FieldError{Field: "request_id", Value: s.RequestID, Want: fmt.Sprintf("an id of its own, not that of faults[%d]", k)})
		}
		first[requestKey(s)] = i
		if err != nil {
			return fault.Nth(i, err)
		}
		specs[i] = checked
	}
	return nil
}

// claim takes all request ids, in an order that two batches with the same ids share, so
// that they do not wait for each other.
func (b *batch) claim(ctx context.Context, specs []fault.Spec) error {
	order := make([]int, len(specs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, k int) int { return cmp.Compare(requestKey(specs[i]), requestKey(specs[k])) })
	for _, i := range order {
		f, ok, made, err := b.m.claim(ctx, specs[i])
		switch {
		case err != nil:
			return fault.Nth(i, err)
		case ok:
			b.faults[i] = f
		default:
			h := &held{fault: fault.Fault{Spec: specs[i], State: fault.Active}, together: map[string][]fault.Offload{}}
			h.wind(0)
			b.parts = append(b.parts, &part{h, i, made})
		}
	}
	slices.SortFunc(b.parts, func(p, q *part) int { return cmp.Compare(p.index, q.index) })
	return nil
}

// made ends the claims: what is in the books although nothing is answered, since an engine
// panicked, keeps its request id.
func (b *batch) made(err error) {
	for _, p := range b.parts {
		id := b.faults[p.index].ID
		if id == "" && err == nil {
			id = b.m.admitted(p.held)
		}
		p.made(id)
	}
}

// each calls f for all parts, until one fails.
func (b *batch) each(f func(*held) error) error {
	for _, p := range b.parts {
		if err := f(p.held); err != nil {
			return fault.Nth(p.index, err)
		}
	}
	return nil
}

func (b *batch) apply(ctx context.Context) error {
	leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	failpoint.At("lease.apply.begin")
	if err := b.admit(ctx); err != nil {
		return err
	}
	if err := b.m.intendAll(ctx, b.parts); err != nil {
		b.drop()
		return fmt.Errorf("apply: %w", err)
	}
	failpoint.At("lease.apply.intended")
	if err := b.begin(ctx); err != nil {
		return errors.Join(err, b.takeBack(ctx))
	}
	failpoint.At("lease.apply.recorded")
	b.rebase(ctx)
	if !b.stand() {
		return errors.Join(errClosed, b.takeBack(ctx))
	}
	return nil
}

// enter finds where all are to be, and enters the lanes of that, as enterNew does.
func (b *batch) enter(ctx context.Context) (leave func(), err error) {
	for {
		if err := b.each(func(h *held) error { return b.aim(ctx, h) }); err != nil {
			return nil, err
		}
		keys := b.lanes()
		if leave, err = b.m.lanes.enter(ctx, keys); err != nil {
			return nil, fmt.Errorf("apply: %w", err)
		}
		err := b.each(func(h *held) error {
			if h.fault.Spec.Selector != nil {
				b.m.adopt(h)
				return nil
			}
			return b.m.aim(ctx, h)
		})
		if err != nil {
			leave()
			return nil, err
		}
		if slices.Equal(keys, b.lanes()) {
			return leave, nil
		}
		leave()
	}
}

func (b *batch) lanes() []string {
	var keys []string
	for _, p := range b.parts {
		keys = append(keys, p.lanes()...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// aim is Manager.aim, but resolves each device once.
func (b *batch) aim(ctx context.Context, h *held) error {
	s := h.fault.Spec.Selector
	if s == nil {
		return b.m.aim(ctx, h)
	}
	t, ok := b.devices[s.Name()]
	if !ok {
		if err := b.m.aim(ctx, h); err != nil {
			return err
		}
		b.devices[s.Name()] = h.target
		return nil
	}
	match, err := s.Match(ctx, b.m.cfg.Lookup)
	if err != nil {
		return err
	}
	t.Name, t.To.Match, t.From.Match = s.String(), match, match.Reverse()
	h.target = t
	places, err := placesFor(t, h.fault.Spec)
	h.slots = slotsFor(h.fault.Spec, places)
	return err
}

// admit plans all and takes them into the books, where each finds those before it.
func (b *batch) admit(ctx context.Context) error {
	if err := b.m.checkRooms(b.parts); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	known := map[string][]fault.Offload{}
	w := &waiter{began: time.Now()}
	err := b.each(func(h *held) error {
		h.together = known
		defer func() { h.together = nil }()
		if err := b.m.plan(ctx, h); err != nil {
			return err
		}
		return b.m.admit(h, w)
	})
	if err != nil {
		b.drop()
	}
	return err
}

// checkRooms refuses more faults than may be held, all at once.
func (m *Manager) checkRooms(parts []*part) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.cfg.Limits
	if n := len(m.order) + len(parts); n > l.Faults {
		return fault.WithHint(fmt.Errorf("%w: %d faults are held and %d asked for, %d are the most (limits.faults)", fault.ErrBusy, len(m.order), len(parts), l.Faults),
			"'netemctl list' shows them")
	}
	asked, has := map[string]int{}, map[string]int{}
	for _, p := range parts {
		asked[p.fault.Spec.Whose()]++
	}
	for _, h := range m.order {
		has[h.fault.Spec.Whose()]++
	}
	for whose, n := range asked {
		if has[whose]+n > l.PerOwner {
			return fault.WithHint(fmt.Errorf("%w: %d faults are held by %s and %d asked for, %d are the most for one owner (limits.faults_per_owner)", fault.ErrBusy,
				has[whose], parts[0].fault.Spec.Owner, n, l.PerOwner), "'netemctl list' shows them")
		}
	}
	return nil
}

// drop takes all that were admitted out of the books; nothing of them is in the kernel.
func (b *batch) drop() {
	for _, p := range b.parts {
		if b.m.admitted(p.held) != "" {
			b.m.drop(p.held)
		}
	}
}

// begin changes the kernel, and records what was done.
func (b *batch) begin(ctx context.Context) error {
	if err := b.each(func(h *held) error { return b.m.offloadOff(ctx, h) }); err != nil {
		return err
	}
	failpoint.At("lease.apply.offload")
	if err := b.setAll(ctx); err != nil {
		return err
	}
	failpoint.At("lease.apply.enforced")
	if err := b.m.holdAll(ctx, b.parts); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// maxDevices is at how many devices slots are set at a time: most of the time of arming one
// is spent waiting for the kernel.
const maxDevices = 8

// setAll sets each slot once, to all that is in force there: device by device, some devices
// at a time. The error is of the first fault for which it failed.
func (b *batch) setAll(ctx context.Context) error {
	on := b.m.atAll(b.slots())
	seen := map[string]bool{}
	devices := map[string][]aimed{}
	for _, p := range b.parts {
		for _, s := range p.slots {
			if !seen[s.key] {
				seen[s.key] = true
				lane := cmp.Or(s.lane, s.key)
				devices[lane] = append(devices[lane], aimed{p, s})
			}
		}
	}
	var (
		all      sync.WaitGroup
		mu       sync.Mutex
		first    = len(b.faults)
		failed   error
		panicked any
	)
	room := make(chan struct{}, maxDevices)
	for _, there := range devices {
		room <- struct{}{}
		all.Go(func() {
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				if r := recover(); r != nil { // who called is to recover it
					panicked = r
				}
				<-room
			}()
			for _, s := range there {
				if err := b.m.set(ctx, s.held, s.slot, on[s.key]); err != nil {
					mu.Lock()
					if s.part.index < first {
						first, failed = s.part.index, fault.Nth(s.part.index, err)
					}
					mu.Unlock()
					return
				}
				failpoint.At("lease.apply.place")
			}
		})
	}
	all.Wait()
	if panicked != nil {
		panic(panicked)
	}
	return failed
}

// aimed is a slot of a part.
type aimed struct {
	*part
	slot
}

// slots are those of all, by their keys.
func (b *batch) slots() map[string]bool {
	keys := map[string]bool{}
	for _, p := range b.parts {
		for _, s := range p.slots {
			keys[s.key] = true
		}
	}
	return keys
}

// atAll is at for many slots.
func (m *Manager) atAll(keys map[string]bool) map[string][]fault.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	on := make(map[string][]fault.Fault, len(keys))
	now := time.Now()
	for _, h := range m.order {
		if h.ending || !now.Before(h.fault.Expires) {
			continue
		}
		for _, s := range h.slots {
			if keys[s.key] {
				on[s.key] = append(on[s.key], h.at(s))
			}
		}
	}
	return on
}

// takeBack undoes all.
func (b *batch) takeBack(ctx context.Context) error {
	var errs []error
	for _, p := range slices.Backward(b.parts) {
		errs = append(errs, b.m.takeBack(ctx, p.held))
	}
	return errors.Join(errs...)
}

// rebase lets all count from now on; each slot is read once.
func (b *batch) rebase(ctx context.Context) {
	read := map[string]fault.Counters{}
	for _, p := range b.parts {
		h := p.held
		if h.fault.Spec.Content != nil {
			b.m.rebase(ctx, h)
			continue
		}
		var base fault.Counters
		for _, s := range h.slots {
			if s.proxy != "" || s.service != "" {
				continue
			}
			c, ok := read[s.key]
			if !ok {
				st, err := b.m.cfg.Engines[h.fault.Engine].Read(ctx, s.place)
				if err != nil {
					b.m.cfg.Log.Warn("counters could not be read", "fault", h.fault.ID, "err", err)
				}
				c = st.Counters
				read[s.key] = c
			}
			base = base.Add(c)
		}
		b.m.mu.Lock()
		h.base, h.carried, h.fault.Counters = base, fault.Counters{}, fault.Counters{}
		b.m.mu.Unlock()
	}
	for _, p := range b.parts {
		b.m.notePlaces(p.held)
	}
}

// stand makes all those that are held; false when the others have been handed over
// meanwhile.
func (b *batch) stand() bool {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	if b.m.kept {
		return false
	}
	for _, p := range b.parts {
		p.whole = true
		b.m.startClock(p.held)
		b.m.publish("applied", p.held, nil)
		b.m.startOutage(p.held)
		b.faults[p.index] = p.fault
	}
	return true
}
