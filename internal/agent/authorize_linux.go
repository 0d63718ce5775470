package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/wire"
)

// api begins the methods that rules are about; the others are gRPC's own services.
const api = "/netem.v1."

// verbOf is what a method of the API does, in the words of the rules. One that is not in the
// table is nobody's.
func verbOf(method string) (v access.Verb, ok bool) {
	v, ok = methodVerbs[strings.TrimPrefix(method, api)]
	return v, ok
}

var methodVerbs = map[string]access.Verb{
	"Faults/Apply": access.Apply, "Faults/ApplyAll": access.Apply, "Faults/Hold": access.Apply, "Faults/Change": access.Change, "Faults/Renew": access.Renew,
	"Faults/Clear": access.Clear, "Faults/Watch": access.Watch, "Faults/Verify": access.Verify, "Faults/Packets": access.Packets,
	"Faults/Get": access.List, "Faults/List": access.List,
	"Targets/Add": access.Target, "Targets/Remove": access.Target,
	"Targets/List": access.List, "Targets/Resolve": access.List,
	"Labs/Up": access.Lab, "Labs/Hold": access.Lab, "Labs/Down": access.Lab, "Labs/List": access.List, "Labs/Get": access.List, "Labs/Diff": access.List, "Labs/Server": access.Apply,
	"Probes/Run": access.Probe, "Probes/Stop": access.Probe,
	"System/Features": access.List, "System/Profiles": access.List, "System/Version": access.List,
}

// changes are the verbs that change the machine, which are always written down.
var changes = map[access.Verb]bool{
	access.Apply: true, access.Change: true, access.Renew: true, access.Clear: true, access.Lab: true, access.Target: true,
}

// authorize returns nil when the caller may do what the request asks for, and notes in c
// what that is.
func (a *Agent) authorize(c *call, req proto.Message) error {
	if all, ok := req.(*netemv1.ApplyAllRequest); ok {
		return a.authorizeAll(c, all)
	}
	if add, ok := req.(*netemv1.AddTargetRequest); ok {
		return a.authorizeAdd(c, add)
	}
	c.target, c.faults = a.aimOf(c, req)
	if services := a.servicesOf(req, c.faults); len(services) > 0 && c.verb != access.List {
		return a.authorizeServices(c, services)
	}
	switch {
	case c.verb == access.List:
		c.target = "" // what reads is about everything
	case c.verb == access.Packets && c.target == "" && !a.policy.Unrestricted(c.peer.access()):
		c.target = access.Unknown // nobody may see what was anybody's
	}
	return a.policy.Allow(c.peer.access(), c.verb, c.target)
}

// authorizeAll is authorize for faults that are made together: each must be allowed, and the
// error names the first that is not.
func (a *Agent) authorizeAll(c *call, req *netemv1.ApplyAllRequest) error {
	seen := map[string]bool{}
	var aims []string
	var refused error
	for i, one := range req.GetFaults() {
		for _, aim := range a.specAims(one.GetSpec()) {
			if seen[aim] {
				continue
			}
			seen[aim] = true
			aims = append(aims, aim)
			if err := a.policy.Allow(c.peer.access(), c.verb, aim); err != nil && refused == nil {
				refused = fault.Nth(i, err)
			}
		}
	}
	c.target = strings.Join(aims, ", ")
	if len(aims) == 0 { // which the handler refuses in words
		return a.policy.Allow(c.peer.access(), c.verb, "")
	}
	return refused
}

// authorizeAdd is authorize for a name that is given: to whoever may do it with the name, and
// with what it is to stand for. Others, who may use the name, could reach it otherwise.
func (a *Agent) authorizeAdd(c *call, req *netemv1.AddTargetRequest) error {
	d, err := wire.DefinitionOf(req.GetDefinition())
	if err == nil {
		err = d.Validate()
	}
	if err != nil {
		return err
	}
	c.target = d.Name + " = " + d.String()
	for _, aim := range []string{d.Name, d.Aim()} {
		if err := a.policy.Allow(c.peer.access(), c.verb, aim); err != nil {
			return err
		}
	}
	return nil
}

// aimOf is what a request is aimed at, as rules name it, and the faults that it names.
// Both are empty where it is about none, or about all; the handlers look at each then.
func (a *Agent) aimOf(c *call, req proto.Message) (aim string, faults []string) {
	switch r := req.(type) {
	case *netemv1.ApplyRequest:
		return a.specAim(r.GetSpec()), nil
	case *netemv1.HoldRequest:
		if id := r.GetResume().GetId(); id != "" {
			return a.faultAim(c, id), []string{id}
		}
		return a.specAim(r.GetApply().GetSpec()), nil
	case *netemv1.ClearRequest:
		if d := r.GetDevice(); d != nil {
			return access.Device + (target.Selector{Namespace: d.GetNamespace(), Device: d.GetDevice()}).Name(), nil
		}
		if r.GetId() != "" {
			return a.faultAim(c, r.GetId()), []string{r.GetId()}
		}
		return a.aimKey(r.GetTarget()), nil
	case *netemv1.ProbeRequest:
		return a.aimKey(r.GetTarget()), nil
	case *netemv1.StopProbeRequest: // a run is its owner's
		return a.aimKey(a.probing.target(c.peer.owner, r.GetId())), nil
	case *netemv1.LabUpRequest:
		return cmp.Or(r.GetAs(), r.GetName()), nil // labfile.Request holds a text to its name
	case *netemv1.ServerRequest: // as a fault of that service
		return r.GetLab() + "/" + r.GetService(), nil
	case interface{ GetId() string }: // Change, Renew, Get, Verify, Packets
		return a.faultAim(c, r.GetId()), []string{r.GetId()}
	case interface{ GetName() string }: // of a target or a lab
		return r.GetName(), nil
	}
	return "", nil
}

func (a *Agent) specAim(s *netemv1.FaultSpec) string {
	if d := s.GetSelector(); d != nil {
		return access.Device + (target.Selector{Namespace: d.GetNamespace(), Device: d.GetDevice()}).Name()
	}
	return a.aimKey(s.GetTarget())
}

// aimKey is the key of a target by its name. What is ambiguous is refused by the handler.
func (a *Agent) aimKey(name string) string {
	key, err := a.targetKey(context.Background(), name)
	if err != nil {
		return aimOfText(name)
	}
	return aimOfText(key)
}

// aimOfText is what a target's key is in words of rules: a name, or what an inline one stands
// for.
func aimOfText(key string) string {
	if !target.Inline(key) {
		return key
	}
	d, err := target.Parse(key)
	if err != nil {
		return access.Unknown // the handler says what is wrong with it
	}
	return d.Aim()
}

// faultAim is what a fault is aimed at that is held, or of which something is still kept;
// empty for any other, of which the handler says so. It is looked for only where it makes a
// difference.
func (a *Agent) faultAim(c *call, id string) string {
	if a.policy.Unrestricted(c.peer.access()) && a.audit == nil {
		return ""
	}
	aim, _ := a.leases.AimOf(id)
	return aimOfFault(aim)
}

// mayClear reports whether the caller of a call may clear a fault like that; the calls
// that name several faults at once leave out the others.
func (a *Agent) mayClear(ctx context.Context, s fault.Spec) bool {
	info, ok := peerOf(ctx)
	aims := []string{aimOfFault(s)}
	if s.Outage != nil {
		aims = s.Outage.Services
	}
	return ok && !slices.ContainsFunc(aims, func(aim string) bool { return a.policy.Allow(info.access(), access.Clear, aim) != nil })
}

// short is a method for people: "Faults/Apply".
func short(method string) string { return strings.TrimPrefix(method, api) }
