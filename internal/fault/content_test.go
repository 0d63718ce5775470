package fault

import (
	"errors"
	"strings"
	"testing"
	"time"

	"netemd/internal/content"
	"netemd/internal/target"
	"netemd/qdisc"
)

func TestValidateContent(t *testing.T) {
	syn := &content.Rule{Kind: content.SYN, Count: 1}
	for name, c := range map[string]struct {
		spec Spec
		want string // in the error; empty for none
	}{
		"target":       {Spec{Target: "pg", Content: syn, Direction: Both, Offload: OffloadOff}, ""},
		"device":       {Spec{Selector: &target.Selector{Device: "v0", Protocol: 6}, Engine: EBPF, Content: syn}, ""},
		"any protocol": {Spec{Selector: &target.Selector{Device: "v0"}, Content: syn}, ""},
		"every of UDP": {Spec{Selector: &target.Selector{Device: "v0", Protocol: 17}, Content: &content.Rule{Kind: content.Every, N: 2}}, ""},
		"SYN of UDP":   {Spec{Selector: &target.Selector{Device: "v0", Protocol: 17}, Content: syn}, `protocol "udp": want tcp: syn is of TCP`},
		"SYN with ACK": {Spec{Selector: &target.Selector{Device: "v0", Protocol: 6, FlagsSet: 0x10}, Content: syn},
			`tcp-flags "ack": want none that contradict syn, which has syn,!ack: nothing would be chosen`},
		"SYN-ACK without ACK": {Spec{Selector: &target.Selector{Device: "v0", Protocol: 6, FlagsSet: 2, FlagsClear: 0x10}, Content: &content.Rule{Kind: content.SYNACK}},
			`tcp-flags "syn,!ack": want none that contradict synack`},
		"FIN without FIN": {Spec{Selector: &target.Selector{Device: "v0", Protocol: 6, FlagsClear: 1}, Content: &content.Rule{Kind: content.FIN}}, `contradict fin`},
		"RST without RST": {Spec{Selector: &target.Selector{Device: "v0", Protocol: 6, FlagsClear: 4}, Content: &content.Rule{Kind: content.RST}}, `contradict rst`},
		"FIN with ACK":    {Spec{Selector: &target.Selector{Device: "v0", Protocol: 6, FlagsSet: 0x10, FlagsClear: 4}, Content: &content.Rule{Kind: content.FIN}}, ""},
		"SYN with ECE":    {Spec{Selector: &target.Selector{Device: "v0", Protocol: 6, FlagsSet: 0x42, FlagsClear: 0x10}, Content: syn}, ""},
		"data with flags": {Spec{Selector: &target.Selector{Device: "v0", Protocol: 6, FlagsSet: 8}, Content: &content.Rule{Kind: content.Data, N: 1}}, ""},
		"and an impair":   {Spec{Target: "pg", Content: syn, Packet: &qdisc.Netem{Loss: 1}}, "fault: want one of"},
		"and a toxic":     {Spec{Target: "pg", Content: syn, Toxics: []Toxic{{Kind: Down}}}, "fault: want one of"},
		"stream":          {Spec{Target: "pg", Content: syn, Engine: Stream}, `engine "stream": want auto or ebpf`},
		"bad rule":        {Spec{Target: "pg", Content: &content.Rule{Kind: "sin"}}, `kind "sin": want syn`},
		"bad hold":        {Spec{Target: "pg", Content: &content.Rule{Kind: content.SYN, Hold: time.Hour}}, `hold "1h"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, qdisc.ErrInvalid)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	// Not a mistake of the user's, but of the engine's.
	err := (Spec{Target: "pg", Content: syn, Engine: Netem}).Validate()
	if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "only the ebpf engine") {
		t.Errorf("on netem: %v, want unsupported, and why", err)
	}
}

func TestChosen(t *testing.T) {
	f := Fault{Counters: Counters{Seen: 9, Lost: 2, Delayed: 3}}
	if got := f.Chosen(); got != 0 {
		t.Errorf("without a rule %d were chosen", got)
	}
	f.Spec.Content = &content.Rule{Kind: content.SYN}
	if got := f.Chosen(); got != 2 {
		t.Errorf("dropped %d, want 2", got)
	}
	f.Spec.Content = &content.Rule{Kind: content.SYN, Hold: time.Second}
	if got := f.Chosen(); got != 3 {
		t.Errorf("held %d, want 3", got)
	}
}
