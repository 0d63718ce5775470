package client

import (
	"context"

	netemv1 "netemd/api/netem/v1"
)

// Server is what a server of a lab tells of itself.
type Server struct {
	Counters map[string]int64 `json:"counters"`
	Settings string           `json:"settings,omitempty"`
}

// LabServer looks at a server of a lab. Settings that are not nil replace those that it has;
// empty ones are those that the lab's definition says. Reset sets the counters to 0.
func (c *Client) LabServer(ctx context.Context, lab, service string, settings []byte, reset bool) (Server, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.labs.Server(ctx, &netemv1.ServerRequest{Lab: lab, Service: service, Settings: settings, Reset_: reset})
	if err != nil {
		return Server{}, c.err(err)
	}
	return Server{m.GetCounters(), string(m.GetSettings())}, nil
}
