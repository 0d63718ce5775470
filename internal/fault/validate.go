package fault

import (
	"errors"
	"slices"
	"strings"
	"time"

	"netemd/internal/target"
	"netemd/qdisc"
)

// Validate returns everything that is wrong with s, each as a *qdisc.FieldError.
// It asks nothing of the kernel and does not know the targets.
func (s Spec) Validate() error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	if s.Outage == nil {
		errs = append(errs, s.validateWhere()...)
	}
	switch s.Direction {
	case "", To, From, Both:
	default:
		refuse("direction", string(s.Direction), "to, from or both")
	}
	switch {
	case s.Outage != nil:
		errs = append(errs, s.validateOutage()...)
	case s.Request != nil:
		errs = append(errs, s.validateRequest()...)
	case !s.OnPackets() && len(s.Toxics) == 0:
		refuse("fault", "", "a packet impairment, a content rule or at least one toxic")
	case s.OnPackets() && len(s.Toxics) > 0, (s.Packet != nil || s.Schedule != nil) && s.Content != nil:
		refuse("fault", "", "one of a packet impairment, a content rule and toxics, not several")
	case s.Content != nil:
		errs = append(errs, s.validateContent()...)
	case s.OnPackets():
		errs = append(errs, s.validatePacket()...)
	default:
		errs = append(errs, s.validateToxics()...)
	}
	if s.PacketFrom != nil && (s.Content != nil || len(s.Toxics) > 0 || s.Request != nil) {
		refuse("from", "", "none: only a packet impairment has one for each direction")
	}
	if len(s.Profile) > 64 {
		refuse("profile", s.Profile[:64]+"...", "a name of at most 64 bytes")
	}
	errs = append(errs, s.validateForce()...)
	if s.TTL != 0 {
		errs = append(errs, ValidateTTL(s.TTL))
	}
	if len(s.RequestID) > 128 {
		refuse("request_id", "", "at most 128 bytes")
	}
	if len(s.Within) > 128 {
		refuse("within", "", "the id of a fault, at most 128 bytes")
	}
	if len(s.Beside) > 128 {
		refuse("beside", "", "the id of a fault, at most 128 bytes")
	}
	if s.Within != "" && s.Beside != "" {
		refuse("beside", s.Beside, "a fault to combine with, or one to end with (within), not both")
	}
	return errors.Join(errs...)
}

// validateWhere looks at what says the place.
func (s Spec) validateWhere() []error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	switch {
	case s.Selector == nil:
		if err := target.CheckText(s.Target); err != nil {
			errs = append(errs, err)
		}
	case s.Target != "":
		refuse("target", s.Target, "a target or a device, not both")
	case s.Request != nil:
		refuse("target", "", "a target's name: requests pass its http-proxy, and a device has none")
	case len(s.Toxics) > 0:
		refuse("target", "", "a target's name: toxics act on connections through its proxy, and a device has none")
	default:
		if err := s.Selector.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// protections are what Force can lift.
var protections = []string{ForceAgent, ForceSSH, ForceDefaultRoute}

// validateForce looks at what is lifted or switched off for a fault.
func (s Spec) validateForce() []error {
	var errs []error
	for _, f := range s.Force {
		if !slices.Contains(protections, f) {
			errs = append(errs, &qdisc.FieldError{Field: "force", Value: f, Want: strings.Join(protections, ", ")})
		}
	}
	switch {
	case s.Offload != "" && s.Offload != OffloadOff:
		errs = append(errs, &qdisc.FieldError{Field: "offload", Value: s.Offload, Want: OffloadOff + " or nothing"})
	case s.Offload != "" && s.Request != nil:
		errs = append(errs, &qdisc.FieldError{Field: "offload", Value: s.Offload, Want: "nothing for requests: they are no packets"})
	case s.Offload != "" && len(s.Toxics) > 0:
		errs = append(errs, &qdisc.FieldError{Field: "offload", Value: s.Offload, Want: "nothing for toxics: they act on bytes, not on packets"})
	}
	return errs
}

func (s Spec) validateToxics() []error {
	var errs []error
	if s.Engine != "" && s.Engine != Stream {
		errs = append(errs, &qdisc.FieldError{Field: "engine", Value: string(s.Engine), Want: "stream for toxics, or none"})
	}
	seen := map[string]bool{}
	for _, t := range s.Toxics {
		if seen[t.Key()] {
			errs = append(errs, &qdisc.FieldError{Field: "toxics", Value: t.Key(), Want: "each kind once for each stream direction"})
		}
		seen[t.Key()] = true
		errs = append(errs, t.Validate())
	}
	return errs
}

// Key tells toxics apart: two of one fault or target may not share it.
func (t Toxic) Key() string {
	if t.Kind == Down {
		return string(Down)
	}
	stream := t.Stream
	if stream == "" {
		stream = Downstream
	}
	return string(t.Kind) + "_" + string(stream)
}

// ValidateTTL refuses a time to live that is out of range.
func ValidateTTL(ttl time.Duration) error {
	if ttl >= MinTTL && ttl <= MaxTTL {
		return nil
	}
	return &qdisc.FieldError{
		Field: "ttl", Value: qdisc.FormatDuration(ttl),
		Want: "a time from " + qdisc.FormatDuration(MinTTL) + " to " + qdisc.FormatDuration(MaxTTL) + ", such as 10m",
	}
}
