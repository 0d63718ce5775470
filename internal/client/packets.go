package client

import (
	"context"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/content"
	"netemd/internal/wire"
)

// Packets calls f with what a fault's rule did: the records that are still kept, in
// parts, each with the totals so far. With follow it goes on with those to come, until
// the fault ends. A fault is known for a minute after its end.
func (c *Client) Packets(ctx context.Context, id string, follow bool, f func(content.Log)) error {
	stream, err := c.faults.Packets(ctx, &netemv1.PacketsRequest{Id: id, Follow: follow})
	if err != nil {
		return c.err(err)
	}
	return each(c, stream.Recv, func(m *netemv1.PacketsMessage) error {
		f(wire.PacketsOf(m))
		return nil
	})
}
