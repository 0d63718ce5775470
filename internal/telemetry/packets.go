package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"netemd/internal/fault"
)

// packets adds up what faults counted, which goes with each of them, to counters that
// only grow. What a fault counted between the last look at it and a change of it, which
// lets it count anew, is not in them. The caller sees to it that calls do not overlap.
type packets struct {
	total    *prometheus.CounterVec
	requests *prometheus.CounterVec
	seen     map[string]*lastLook
}

// lastLook is what a fault had counted when it was seen last.
type lastLook struct {
	counters fault.Counters
	// at is when that was at the latest, and missed how many looks have not found it since.
	at     time.Time
	missed int
}

func newPackets() *packets {
	p := &packets{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "netemd_packets_total",
			Help: "Packets that faults met, by what became of them: seen (all that were selected), lost, overflow (dropped by a full queue), late (dropped after the engine had stood still), refused (by the device), delayed, duplicated, reordered, corrupted, opened (let through because the engine was late).",
		}, []string{"outcome", "engine", "kind"}),
		requests: newRequestsTotal(),
		seen:     map[string]*lastLook{},
	}
	for _, c := range carriers {
		p.add(c, fault.Counters{})
	}
	return p
}

// look counts what the held faults have counted since the look before. One that two looks
// have missed has ended without anybody's saying so.
func (p *packets) look(all []fault.Fault) {
	now := time.Now()
	for _, l := range p.seen {
		l.missed++
	}
	for _, f := range all {
		p.count(f, now)
	}
	for id, l := range p.seen {
		if l.missed > 1 {
			delete(p.seen, id)
		}
	}
}

// observe counts what a fault has counted when something happened to it, and forgets it
// at its end. An event may be told when a look has already seen more.
func (p *packets) observe(e fault.Event) {
	ended := e.Kind == "cleared" || e.Kind == "expired"
	if l := p.seen[e.Fault.ID]; ended || l == nil || e.Time.After(l.at) {
		p.count(e.Fault, e.Time)
	}
	if ended {
		delete(p.seen, e.Fault.ID)
	}
}

func (p *packets) count(f fault.Fault, at time.Time) {
	l := p.seen[f.ID]
	if l == nil {
		l = &lastLook{}
		p.seen[f.ID] = l
	}
	p.add(carrierOf(f), f.Counters.Since(l.counters))
	l.counters, l.at, l.missed = f.Counters, at, 0
}

func (p *packets) add(c carrier, n fault.Counters) {
	if c.engine == string(fault.Application) {
		addRequests(p.requests, n)
		return
	}
	for outcome, v := range map[string]uint64{
		"seen": n.Seen, "lost": n.Lost, "overflow": n.Overflow, "late": n.Late, "refused": n.Refused, "delayed": n.Delayed,
		"duplicated": n.Duplicated, "reordered": n.Reordered, "corrupted": n.Corrupted, "opened": n.Opened,
	} {
		p.total.WithLabelValues(outcome, c.engine, c.kind).Add(float64(v))
	}
}
