package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/audit"
	"netemd/internal/config"
	"netemd/internal/fault"
)

// openAudit opens the log of who did what; nil where none is configured.
func (a *Agent) openAudit() (err error) {
	c := a.cfg.Settings.Audit
	if err := checkAudit(c); err != nil {
		return err
	}
	a.audit, err = openLog(c, c.Path)
	return err
}

func openLog(c config.Audit, path string) (*audit.Log, error) {
	if c.Path == "" {
		return nil, nil //nolint:nilnil // a nil Log writes nothing
	}
	const megabyte = 1_000_000
	return audit.Open(audit.Config{Path: path, MaxBytes: int64(c.MaxMegabytes) * megabyte, Keep: c.Keep})
}

// record writes a call down in the log of who did what.
func (a *Agent) record(c *call, err error) {
	if a.audit == nil {
		return
	}
	a.write(c.record(err))
}

// record is a call as the log of who did what has it.
func (c *call) record(err error) audit.Record {
	r := audit.Record{
		Actor: c.peer.owner, Peer: c.peer.audit(), Method: short(c.method), Verb: string(c.verb), Target: c.target, Faults: c.faults,
		Request: summary(c.req), Code: codeOf(err), Duration: time.Since(c.begun),
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// write appends to the log of who did what. It does not fail what it records: a full disk must not keep a fault from ending.
func (a *Agent) write(r audit.Record) { a.writeTo(a.audit, r) }

func (a *Agent) writeTo(l *audit.Log, r audit.Record) {
	if err := l.Write(r); err != nil {
		a.cfg.Log.Error("the audit log could not be written", "err", err, "verb", r.Verb, "actor", r.Actor, "faults", strings.Join(r.Faults, " "))
	}
}

// summary is a request as JSON, without what is nobody else's business.
func summary(req proto.Message) string {
	if req == nil {
		return ""
	}
	req = proto.Clone(req)
	switch r := req.(type) {
	case *netemv1.ApplyRequest:
		r.SshConnection = ""
	case *netemv1.ApplyAllRequest:
		for _, one := range r.GetFaults() {
			one.SshConnection = ""
		}
	case *netemv1.HoldRequest:
		if r.GetApply() != nil {
			r.GetApply().SshConnection = ""
		}
	}
	text, err := protojson.Marshal(req)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// byItself are the events that no call makes.
var byItself = map[string]bool{"expired": true, "lost": true, "drifted": true, "repaired": true, "reattached": true}

// watchEvents counts what happens to faults, and writes down what no call did, until the
// agent's faults are closed.
func (a *Agent) watchEvents(ctx context.Context) {
	err := followEvents(ctx, a.leases.Watch, a.leases.Life(), func(e fault.Event) {
		a.telemetry.Observe(e)
		if a.audit != nil && byItself[e.Kind] {
			a.write(audit.Record{
				Actor: audit.Agent, Verb: e.Kind, Target: aimOfFault(e.Fault.Spec), Faults: []string{e.Fault.ID}, Code: codeOf(nil),
				Request: "fault of " + e.Fault.Spec.Owner,
			})
		}
	}, func(err error) {
		a.cfg.Log.Error("events are missing in the audit log and the metrics", "err", err)
		if a.audit != nil {
			a.write(audit.Record{Actor: audit.Agent, Verb: "missed", Code: codeOf(err), Error: err.Error()})
		}
	})
	if err != nil && ctx.Err() == nil {
		a.cfg.Log.Error("no more events come into the audit log and the metrics", "err", err)
	}
}

// watchFunc is lease.Manager.Watch.
type watchFunc func(ctx context.Context, after uint64, life string, f func(fault.Event) error) error

// followEvents calls f for all events of a life. After a gap, of which it tells missed, it
// goes on with what comes then.
func followEvents(ctx context.Context, watch watchFunc, life string, f func(fault.Event), missed func(error)) error {
	for {
		err := watch(ctx, 0, life, func(e fault.Event) error {
			f(e)
			return nil
		})
		if !errors.Is(err, fault.ErrMissed) {
			return err
		}
		missed(err)
		life = "" // from now on
	}
}

// recordRemoved writes down what a start, a stop or a cleanup took away or put back.
func (a *Agent) recordRemoved(verb string, what []string, err error) {
	if a.audit == nil || len(what) == 0 && err == nil {
		return
	}
	r := audit.Record{Actor: audit.Agent, Verb: verb, Request: strings.Join(what, "; "), Code: codeOf(err)}
	if err != nil {
		r.Error = err.Error()
	}
	a.write(r)
}

// aimOfFault is what a fault is aimed at, as rules name it.
func aimOfFault(s fault.Spec) string {
	if s.Outage != nil {
		return s.TargetName()
	}
	if s.Selector != nil {
		return access.Device + s.Selector.Name()
	}
	return aimOfText(s.Target)
}
