package prober

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"netemd/internal/content"
	"netemd/probe"
)

// Drops is a running record of the packets that faults drop.
type Drops interface {
	// Drain returns what was dropped since the beginning or the Drain before, and how much
	// in all could not be recorded.
	Drain(context.Context) (records []content.Record, missed uint64, err error)
	Close() error
}

// dropOf says a record in the words of a sample; false for what has no ports.
func dropOf(r content.Record) (probe.Drop, bool) {
	const tcp = 6
	from, err := netip.ParseAddrPort(r.Source)
	if err != nil {
		return probe.Drop{}, false
	}
	to, err := netip.ParseAddrPort(r.Destination)
	if err != nil {
		return probe.Drop{}, false
	}
	kind := probe.DropPacket
	if r.Protocol == tcp {
		kind = probe.DropKind(r.Flags, int(r.Payload))
	}
	return probe.Drop{TimeNS: r.Time, Source: from, Destination: to, Kind: kind, Bytes: int(r.Payload), Sequence: r.Sequence}, true
}

// drainDrops gives the attributor what was dropped; the caller has the lock.
func (f *flow) drainDrops(records []content.Record, missed uint64) {
	f.engine += missed - f.missed
	f.missed = missed
	for _, r := range records {
		d, ok := dropOf(r)
		if at := f.config.Order.Address; ok && d.Source != at && d.Destination != at {
			continue // of another target: the record is the engine's, and has everybody's
		}
		f.engine++
		if ok {
			f.attr.Drop(d)
		}
	}
}

// openDrops begins the record, if one can be kept.
func (f *flow) openDrops() error {
	if f.config.Drops == nil {
		return nil
	}
	d, err := f.config.Drops()
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("probe: record of dropped packets: %w", err)
	}
	f.drops = d
	return nil
}

// drain takes what was dropped since the last time.
func (f *flow) drain() ([]content.Record, uint64, error) {
	if f.drops == nil {
		return nil, 0, nil
	}
	return f.drops.Drain(context.Background())
}
