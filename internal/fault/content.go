package fault

import (
	"errors"
	"fmt"

	"netemd/internal/content"
	"netemd/internal/target"
	"netemd/qdisc"
)

// tcp is the IP protocol of all kinds of rules but two.
const tcp = 6

// Chosen is how many packets a fault with a content rule acted on.
func (f Fault) Chosen() uint64 {
	switch {
	case f.Spec.Content == nil:
		return 0
	case f.Spec.Content.Hold > 0:
		return f.Counters.Delayed
	}
	return f.Counters.Lost
}

// ErrOnlyEBPF is returned, wrapped, for a content rule on another engine.
var ErrOnlyEBPF = fmt.Errorf("netem leaves to chance which packets it acts on, only the ebpf engine can choose them: %w", errors.ErrUnsupported)

func (s Spec) validateContent() []error {
	var errs []error
	switch s.Engine {
	case "", Auto, EBPF:
	case Netem:
		errs = append(errs, fmt.Errorf("%s: engine netem: %w", s.Content.Action(), ErrOnlyEBPF))
	default:
		errs = append(errs, &qdisc.FieldError{Field: "engine", Value: string(s.Engine), Want: "auto or ebpf for a content rule"})
	}
	if sel := s.Selector; sel != nil && sel.Protocol != 0 && sel.Protocol != tcp && s.Content.Kind != content.Every && s.Content.Kind != content.Match {
		errs = append(errs, &qdisc.FieldError{
			Field: "protocol", Value: target.ProtocolName(sel.Protocol), Want: fmt.Sprintf("tcp: %s is of TCP, and nothing would be chosen", s.Content.Kind),
		})
	}
	if sel := s.Selector; sel != nil {
		set, unset := s.Content.Flags()
		if set&sel.FlagsClear|unset&sel.FlagsSet != 0 {
			errs = append(errs, &qdisc.FieldError{
				Field: "tcp-flags", Value: target.FlagsText(sel.FlagsSet, sel.FlagsClear),
				Want: fmt.Sprintf("none that contradict %s, which has %s: nothing would be chosen", s.Content.Kind, target.FlagsText(set, unset)),
			})
		}
	}
	return append(errs, s.Content.Validate())
}
