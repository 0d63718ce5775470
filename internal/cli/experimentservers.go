package cli

import (
	"context"

	"netemd/internal/experiment"
)

// labServers are the servers of a lab that is up.
type labServers struct {
	agent Agent
	lab   string
}

// servers are those of a plan's lab; nil without one.
func (a *app) servers(ctx context.Context, agent Agent, name string) experiment.Servers {
	if name == "" {
		return nil
	}
	request, err := a.labRequest(ctx, name, "")
	if err != nil {
		return nil // the making of the lab says why
	}
	return labServers{agent, request.Name}
}

// Set implements experiment.Servers.
func (s labServers) Set(ctx context.Context, service string, text []byte) error {
	if text == nil {
		text = []byte{}
	}
	_, err := s.agent.LabServer(ctx, s.lab, service, text, false)
	return err
}

// Counters implements experiment.Servers.
func (s labServers) Counters(ctx context.Context, service string) (map[string]int64, error) {
	state, err := s.agent.LabServer(ctx, s.lab, service, nil, false)
	return state.Counters, err
}
