package fault

import (
	"errors"

	"netemd/internal/schedule"
	"netemd/qdisc"
)

// fromPlace is the index of the place of the direction "from" in a fault of both directions
// that has one for each.
const fromPlace = 1

// OnPackets reports whether s acts on packets at places, all of them or chosen ones, and
// not on connections through a proxy.
func (s Spec) OnPackets() bool { return s.Packet != nil || s.Content != nil || s.Schedule != nil }

// PacketAt is the impairment at the place of that index, as it is asked for now: with a seed of
// its own, so that two places do not draw the same.
func (s Spec) PacketAt(index int) qdisc.Netem {
	var n qdisc.Netem
	switch {
	case index == fromPlace && s.Direction == Both && s.PacketFrom != nil:
		n = *s.PacketFrom
	case s.Packet != nil:
		n = *s.Packet
	}
	n.Seed = Seed(n.Seed, index)
	return n
}

// Cover is all that s may have in force at the place of that index at some time, one value of
// each kind. It is PacketAt but for a Schedule.
func (s Spec) Cover(index int) qdisc.Netem {
	if s.Schedule == nil {
		return s.PacketAt(index)
	}
	to, from := s.Schedule.Cover()
	if index == fromPlace && s.Direction == Both {
		return from
	}
	return to
}

// Asymmetric reports whether the two directions are not impaired alike.
func (s Spec) Asymmetric() bool {
	return s.PacketFrom != nil || s.Schedule != nil && s.Schedule.Asymmetric()
}

// present gives s what its schedule has in force in a moment.
func (s *Spec) present(i schedule.Impairment) {
	s.Packet, s.PacketFrom = new(i.Packet), i.PacketFrom
}

// Follow gives s the impairment of a moment of its Schedule.
func (s *Spec) Follow(m schedule.Moment) { s.present(m.Impairment) }

func (s Spec) validatePacket() []error {
	var errs []error
	switch s.Engine {
	case "", Auto, Netem, EBPF:
	default:
		errs = append(errs, &qdisc.FieldError{Field: "engine", Value: string(s.Engine), Want: "auto, netem or ebpf"})
	}
	if s.Asymmetric() && s.Direction != Both {
		errs = append(errs, &qdisc.FieldError{Field: "direction", Value: string(s.direction()), Want: "both: each direction has an impairment of its own"})
	}
	if s.Schedule != nil {
		return append(errs, inField("schedule", s.Schedule.Validate()))
	}
	if s.Packet == nil {
		return append(errs, &qdisc.FieldError{Field: "from", Want: "an impairment of the packets to the target beside it"})
	}
	if s.Packet.IsZero() && (s.PacketFrom == nil || s.PacketFrom.IsZero()) {
		errs = append(errs, &qdisc.FieldError{Field: "fault", Want: "an impairment that is more than zero; 'clear' takes one away"})
	}
	errs = append(errs, s.Packet.Validate())
	if s.PacketFrom != nil {
		errs = append(errs, inField("from", s.PacketFrom.Validate()))
	}
	return errs
}

// direction is that of s, with its default.
func (s Spec) direction() Direction {
	if s.Direction == "" {
		return To
	}
	return s.Direction
}

// inField names what the fields of err are below.
func inField(name string, err error) error {
	fields, ok := fieldsOf(err)
	if !ok {
		return err
	}
	named := make([]error, len(fields))
	for i, f := range fields {
		n := *f
		n.Field = name + "." + n.Field
		named[i] = &n
	}
	return errors.Join(named...)
}
