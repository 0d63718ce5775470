package agent

import (
	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/content"
	"netemd/internal/wire"
)

// packetsAPart is how many records go into one message: some 100 bytes each, far below
// what a message may have.
const packetsAPart = 1000

func (s faultsServer) Packets(r *netemv1.PacketsRequest, stream grpc.ServerStreamingServer[netemv1.PacketsMessage]) error {
	send := func(l content.Log) error {
		return sendParts(l, func(part content.Log) error { return stream.Send(wire.Packets(part)) })
	}
	if r.GetFollow() {
		return s.a.leases.FollowPackets(stream.Context(), r.GetId(), ownerKey(stream.Context()), send)
	}
	log, _, err := s.a.leases.Packets(stream.Context(), r.GetId())
	if err != nil {
		return err
	}
	return send(log)
}

// sendParts sends a log in parts, at least one, each with the totals; what was skipped
// is before the first.
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
		l.Skipped = 0
	}
}
