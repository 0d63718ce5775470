package agent

import (
	"strings"

	"google.golang.org/protobuf/proto"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/engine/process"
	"netemd/internal/fault"
	"netemd/internal/lab"
)

// newProcessEngine makes what has services of the agent's own labs fail, and none but those.
func newProcessEngine(labs *lab.Manager) *process.Engine {
	return process.New(process.Config{
		Dial: func(name string) (process.Link, error) {
			l, err := labs.Link(name)
			if err != nil {
				return nil, err
			}
			return l, nil
		},
		Changed: labs.Refresh,
	})
}

// nameServices gives the services of an outage their one names, by which faults are kept and
// rules of access go.
func (a *Agent) nameServices(spec *fault.Spec) error {
	o := *spec.Outage
	o.Services = make([]string, len(spec.Outage.Services))
	for i, name := range spec.Outage.Services {
		key, err := a.labs.FindService(name)
		if err != nil {
			return err
		}
		o.Services[i] = key
	}
	spec.Outage = &o
	return nil
}

// servicesStand is nil while labs that are up have the services.
func (a *Agent) servicesStand(names []string) error {
	for _, name := range names {
		if _, err := a.labs.FindService(name); err != nil {
			return err
		}
	}
	return nil
}

// serviceKeys are the names of a lab's services.
func serviceKeys(i lab.Info) []string {
	var keys []string
	for _, n := range i.Nodes {
		for _, s := range n.Services {
			keys = append(keys, i.Name+"/"+s.Name)
		}
	}
	return keys
}

// specAims are what a fault is to be aimed at, as rules name it.
func (a *Agent) specAims(s *netemv1.FaultSpec) []string {
	if s.GetOutage() == nil {
		return []string{a.specAim(s)}
	}
	aims := a.servicesAims(s.GetOutage().GetServices())
	if len(aims) == 0 {
		return []string{""} // which the handler refuses in words
	}
	return aims
}

// servicesAims are the one names of services. What is not there, or ambiguous, is refused by
// the handler.
func (a *Agent) servicesAims(names []string) []string {
	aims := make([]string, len(names))
	for i, name := range names {
		aims[i] = name
		if key, err := a.labs.FindService(name); err == nil {
			aims[i] = key
		}
	}
	return aims
}

// servicesOf are those that a request makes fail, or that the fault which it names does.
func (a *Agent) servicesOf(req proto.Message, faults []string) []string {
	var spec *netemv1.FaultSpec
	switch r := req.(type) {
	case *netemv1.ApplyRequest:
		spec = r.GetSpec()
	case *netemv1.HoldRequest:
		spec = r.GetApply().GetSpec()
	}
	if o := spec.GetOutage(); o != nil {
		return a.servicesAims(o.GetServices())
	}
	if len(faults) == 1 {
		if aim, _ := a.leases.AimOf(faults[0]); aim.Outage != nil {
			return aim.Outage.Services
		}
	}
	return nil
}

// authorizeServices is authorize for what is about services: each must be allowed.
func (a *Agent) authorizeServices(c *call, services []string) error {
	c.target = strings.Join(services, ", ")
	for _, name := range services {
		if err := a.policy.Allow(c.peer.access(), c.verb, name); err != nil {
			return err
		}
	}
	return nil
}
