package agent

import (
	"context"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/probe"
	"netemd/qdisc"
)

// held is how long the faults on the way to a target hold back what passes now, by what
// was asked of them: those on its packets, or those in its proxy where the client connects
// to that.
func (a *Agent) held(ctx context.Context, r probe.Request, t target.Target) probe.Held {
	h := probe.Held{Proxy: r.Layer == probe.LayerProxy || r.Layer == probe.LayerApp}
	for _, f := range a.leases.Known() {
		switch mine := f.Spec.Target == t.Key(); {
		case r.Layer == probe.LayerApp && mine && f.Spec.Request != nil:
			addRequest(&h, *f.Spec.Request)
		case h.Proxy && mine && r.Layer == probe.LayerProxy:
			for _, x := range f.Spec.Toxics {
				addToxic(&h, x)
			}
		case !h.Proxy && f.Spec.Packet != nil && (mine || a.onTheWay(ctx, f, t)):
			addPacket(&h, f.Spec)
		}
	}
	if h == (probe.Held{Proxy: true}) {
		return probe.Held{}
	}
	return h
}

func addPacket(h *probe.Held, s fault.Spec) {
	there, back := *s.Packet, *s.Packet
	if s.PacketFrom != nil {
		back = *s.PacketFrom
	}
	add := func(delay, jitter time.Duration) {
		h.Turn += delay
		h.Least += max(0, delay-jitter)
	}
	if s.Direction != fault.From {
		add(there.Delay, there.Jitter)
		h.SentByte += perByte(there.Rate)
	}
	if s.Direction == fault.From || s.Direction == fault.Both {
		add(back.Delay, back.Jitter)
		h.ReceivedByte += perByte(back.Rate)
	}
}

// perByte is how long a byte takes at a rate, in seconds; 0 without one.
func perByte(r qdisc.Rate) float64 {
	if r == 0 {
		return 0
	}
	return 1 / float64(r)
}

// addRequest counts a delay of some requests as one of all on average, and of none at the least.
func addRequest(h *probe.Held, r fault.Request) {
	h.Turn += r.Latency
	if r.Delay == 100 {
		h.Least += r.Latency - r.Jitter
	}
}

// addToxic counts a toxic that spares some connections as one that does not on average, and
// not at all at the least.
func addToxic(h *probe.Held, x fault.Toxic) {
	each := 0.0
	switch x.Kind {
	case fault.Latency:
		h.Turn += x.Latency
		if x.Toxicity == 0 || x.Toxicity == 100 {
			h.Least += x.Latency - x.Jitter
		}
	case fault.Bandwidth:
		each = perByte(x.Rate)
	case fault.Slicer:
		each = x.Delay.Seconds() / float64(x.AverageSize)
	}
	if x.Stream == fault.Upstream {
		h.SentByte += each
	} else {
		h.ReceivedByte += each
	}
}

// downtimes are the times in which strikes had a service stopped or ended: a process that was
// stopped answers from when it goes on, a new one once it is ready.
func downtimes(strikes []fault.StrikeRecord) []probe.Downtime {
	var all []probe.Downtime
	for _, s := range strikes {
		if s.Down.IsZero() {
			continue
		}
		until := s.Ready
		if s.Action == fault.Stop {
			until = s.Up
		}
		all = append(all, probe.Downtime{FromNS: s.Down.Monotonic, UntilNS: until.Monotonic})
	}
	return all
}
