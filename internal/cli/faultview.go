package cli

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/fidelity"
	"netemd/qdisc"
)

// faultView is a fault as JSON. Field names carry units. A stream fault has no
// direction but its toxics' own, and no counters.
type faultView struct {
	ID           string          `json:"id"`
	Target       string          `json:"target"`
	State        fault.State     `json:"state"`
	Reason       string          `json:"reason,omitempty"` // why it is lost or drifted, or was at its end
	Engine       fault.Engine    `json:"engine"`
	EngineReason string          `json:"engine_reason"`
	Direction    fault.Direction `json:"direction"`
	Summary      string          `json:"summary"`
	Owner        string          `json:"owner"`
	// Held says that a client holds it, and that it ends with that; HoldToken is that
	// client's, null for none.
	Held      bool    `json:"held"`
	HoldToken *uint64 `json:"hold_token"`
	// Repair says that it is put back when somebody else changes or removes it.
	Repair bool `json:"repair"`
	// Reattach says that it follows its target when that goes and comes back.
	Reattach    bool `json:"reattach,omitempty"`
	*packetView      // null for a stream fault
	// From is that of the packets from the target, where it is another one; Profile is the name
	// of what both were made of, Schedule what they go by.
	From         *packetView   `json:"packet_from,omitempty"`
	Profile      string        `json:"profile,omitempty"`
	Schedule     *scheduleView `json:"schedule,omitempty"`
	Content      *ruleView     `json:"content,omitempty"`
	*trafficView               // null for a target with a name
	Toxics       []toxicView   `json:"toxics,omitempty"`
	Outage       *outageView   `json:"outage,omitempty"`
	// Request is a fault of requests, and RequestCounters are what it did.
	Request         *requestView     `json:"request,omitempty"`
	RequestCounters *requestCounters `json:"request_counters,omitempty"`
	Placement       []string         `json:"placement"`
	// Forced are the protections that were lifted. Offload is "off" where segmentation
	// offload was switched off, and Offloads what the devices of the path do.
	Forced     []string             `json:"force,omitempty"`
	Offload    string               `json:"offload,omitempty"`
	Offloads   []offloadView        `json:"offloads"`
	Applied    time.Time            `json:"applied"`
	Expires    time.Time            `json:"expires"`
	RemainingS float64              `json:"remaining_s"`
	TTLNS      int64                `json:"ttl_ns"`
	Warnings   []string             `json:"warnings"`
	Counters   *experiment.Counters `json:"counters"`
	// NotCounted names the counters that the engine cannot give, 0 for that reason.
	NotCounted   []string `json:"counters_missing"`
	MeasuredLoss *float64 `json:"measured_loss_percent,omitempty"`
	// Chosen are the packets that a rule acted on; netemctl packets names them.
	Chosen *uint64 `json:"chosen_packets,omitempty"`
	// Queued are held now, or were at the end of one that has ended: those of a hold leave
	// until QueuedUntil.
	Queued      *uint64    `json:"queued_packets"`
	QueuedUntil *time.Time `json:"queued_until,omitempty"`
	// Verification is that of apply --verify.
	Verification *fidelity.Result `json:"verification,omitempty"`
}

func viewFault(f fault.Fault, now time.Time) faultView {
	v := faultView{
		ID: f.ID, Target: subject(f.Spec), State: f.State, Reason: f.Reason, Engine: f.Engine, EngineReason: f.EngineReason,
		Summary: words(f.Spec), Owner: f.Spec.Owner, Placement: list(f.Placement), Applied: f.Applied, Expires: f.Expires,
		RemainingS: math.Round(max(0, f.Expires.Sub(now).Seconds())*10) / 10,
		TTLNS:      int64(f.Spec.TTL), Repair: f.Spec.Repair, Reattach: f.Spec.Reattach, Warnings: list(f.Warnings),
		NotCounted: list(f.CountersMissing), Forced: f.Spec.Force, Offload: f.Spec.Offload, Offloads: viewOffloads(f.Offloads),
	}
	if f.Token != 0 {
		v.Held, v.HoldToken = true, new(f.Token)
	}
	if f.Spec.Selector != nil {
		v.trafficView = viewTraffic(*f.Spec.Selector)
	}
	if p := f.Spec.Packet; p != nil {
		v.packetView = viewPacket(*p)
		v.Direction = directionOf(f.Spec)
		v.Counters = new(experiment.PacketCounters(f.Counters))
		v.MeasuredLoss = measuredLoss(f)
	}
	if from := f.Spec.PacketFrom; from != nil {
		v.From = viewPacket(*from)
	}
	v.Profile = f.Spec.Profile
	if s := f.Spec.Schedule; s != nil {
		v.Schedule = viewSchedule(*s)
		v.Schedule.Step = viewStep(f.Step)
	}
	if r := f.Spec.Content; r != nil {
		v.Content = viewRule(*r)
		v.Direction = directionOf(f.Spec)
		v.Counters = new(experiment.PacketCounters(f.Counters))
		v.Chosen = new(f.Chosen())
	}
	v.Queued, v.QueuedUntil = queued(f), queuedUntil(f, now)
	if o := f.Spec.Outage; o != nil {
		v.Outage = viewOutage(*o, f.Outages)
	}
	if r := f.Spec.Request; r != nil {
		v.Request, v.RequestCounters = viewRequest(*r), viewRequests(f.Counters)
	}
	for _, t := range f.Spec.Toxics {
		v.Toxics = append(v.Toxics, viewToxic(t))
	}
	return v
}

func notCounted(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; not counted by this engine: " + strings.Join(names, ", ")
}

// list is never null in JSON.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func directionOf(s fault.Spec) fault.Direction {
	if s.Direction == "" {
		return fault.To
	}
	return s.Direction
}

// faultText is a fault for people.
func faultText(f fault.Fault, now time.Time) func(io.Writer, style) {
	return func(w io.Writer, s style) {
		fmt.Fprintf(w, "%s %s: %s\n", s.bold(f.ID), paintState(s, f.State), s.bold(words(f.Spec)))
		rows := [][2]string{
			{"reason", f.Reason},
			{"engine", string(f.Engine) + because(f.EngineReason)},
			{"placement", strings.Join(f.Placement, "; ")},
		}
		if f.Spec.Selector != nil {
			rows = append(rows, [2]string{"match", traffic(*f.Spec.Selector)})
		}
		if p := f.Spec.Packet; p != nil {
			rows = append(rows, impairmentRows(f.Spec, *p)...)
		}
		rows = append(rows, stepRows(f, now)...)
		rows = append(rows, outageRows(f, now)...)
		for _, o := range f.Offloads {
			rows = append(rows, [2]string{"offload", offloadText(o)})
		}
		rows = append(rows,
			[2]string{"forced", strings.Join(f.Spec.Force, ", ")},
			[2]string{"owner", f.Spec.Owner},
			[2]string{"held", heldText(f)},
			[2]string{"repair", repairText(f)},
			[2]string{"reattach", reattachText(f)},
			[2]string{"ends", endsText(f, now)})
		rows = append(rows, requestRows(f)...)
		if f.Counters != (fault.Counters{}) && f.Spec.Request == nil {
			rows = append(rows, [2]string{"packets", countersText(f.Counters) + notCounted(f.CountersMissing)})
		}
		rows = append(rows, [2]string{"chosen", chosenText(f)}, [2]string{"loss", lossText(f)}, [2]string{"undo", "netemctl clear " + f.ID})
		pairs(w, s, rows)
	}
}

// endsText says when a fault ends: an outage that does so by itself does when all is done.
func endsText(f fault.Fault, now time.Time) string {
	if o := f.Spec.Outage; o != nil {
		if _, finite := o.Length(); finite {
			return "when all is done, at the latest " + ends(f, now)
		}
	}
	return ends(f, now)
}

// impairmentRows say a packet fault's impairment, of each direction where they differ.
func impairmentRows(s fault.Spec, p qdisc.Netem) [][2]string {
	if s.PacketFrom == nil {
		return [][2]string{{"impairment", p.Normalize().String()}}
	}
	return [][2]string{{"to", p.Normalize().String()}, {"from", s.PacketFrom.Normalize().String()}}
}

func heldText(f fault.Fault) string {
	if f.Token == 0 {
		return ""
	}
	return fmt.Sprintf("by a client, and ends with it (token %d)", f.Token)
}

func repairText(f fault.Fault) string {
	if !f.Spec.Repair {
		return ""
	}
	return "put back when somebody else changes or removes it"
}

func reattachText(f fault.Fault) string {
	if !f.Spec.Reattach {
		return ""
	}
	return "put where the target is when that goes and comes back"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func paintState(s style, state fault.State) string {
	switch state {
	case fault.Active:
		return s.good(string(state))
	case fault.Lost, fault.Drifted:
		return s.bad(string(state))
	}
	return string(state)
}

// countersText says the counters that are not 0.
func countersText(c fault.Counters) string {
	parts := []string{fmt.Sprintf("%d seen", c.Seen)}
	for _, p := range []struct {
		n    uint64
		what string
	}{
		{c.Lost, "lost"}, {c.Overflow, "lost to a full queue"},
		{c.Late, "thrown away late, the engine having stood still"}, {c.Refused, "refused by the device"}, {c.Delayed, "delayed"}, {c.Duplicated, "duplicated"},
		{c.Reordered, "reordered"}, {c.Corrupted, "corrupted"}, {c.Opened, "passed unimpaired, the engine being late"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// short is a duration in whole seconds, or finer below 10 s: "10m", "1h30m".
func short(d time.Duration) string {
	if d >= 10*time.Second {
		return qdisc.FormatDuration(d.Round(time.Second))
	}
	return qdisc.FormatDuration(d.Round(100 * time.Millisecond))
}
