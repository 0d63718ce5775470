package agent

import (
	"context"
	"time"

	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/content"
	"netemd/internal/wire"
)

// How often new records are looked for while somebody follows, and how many go into one
// message: some 100 bytes each, far below what a message may have.
const (
	followEvery  = 200 * time.Millisecond
	packetsAPart = 1000
)

func (s faultsServer) Packets(r *netemv1.PacketsRequest, stream grpc.ServerStreamingServer[netemv1.PacketsMessage]) error {
	read := func(ctx context.Context) (content.Log, bool, error) { return s.a.leases.Packets(ctx, r.GetId()) }
	return followPackets(stream.Context(), r.GetFollow(), read, func(l content.Log) error { return stream.Send(wire.Packets(l)) })
}

// followPackets sends the records of a log, in parts with the totals, at least one, and
// with follow those to come until the fault ends, which read says by false.
func followPackets(
	ctx context.Context, follow bool, read func(context.Context) (content.Log, bool, error), send func(content.Log) error,
) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var before content.Log
	for first := true; ; first = false {
		now, live, err := read(ctx)
		if err != nil {
			return err
		}
		if fresh := newRecords(before.Records, now.Records); first || len(fresh) > 0 || now.Missed != before.Missed {
			if err := sendParts(content.Log{Records: fresh, Chosen: now.Chosen, Missed: now.Missed}, send); err != nil {
				return err
			}
		}
		if !follow || !live {
			return nil
		}
		before = now
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// newRecords are those of now that before has not. They may come late, between others;
// and the oldest of before may be gone. The wall clock tells nothing apart: it may have
// been set.
func newRecords(before, now []content.Record) []content.Record {
	same := func(r content.Record) content.Record { r.Wall = time.Time{}; return r }
	had := make(map[content.Record]int, len(before))
	for _, r := range before {
		had[same(r)]++
	}
	var fresh []content.Record
	for _, r := range now {
		if k := same(r); had[k] > 0 {
			had[k]--
			continue
		}
		fresh = append(fresh, r)
	}
	return fresh
}

func sendParts(l content.Log, send func(content.Log) error) error {
	records := l.Records
	for {
		n := min(len(records), packetsAPart)
		l.Records, records = records[:n], records[n:]
		if err := send(l); err != nil {
			return err
		}
		if len(records) == 0 {
			return nil
		}
	}
}
