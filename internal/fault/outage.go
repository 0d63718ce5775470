package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/qdisc"
)

// OutageAction is what is done to a service.
type OutageAction string

// The actions.
const (
	// Kill sends SIGKILL to all processes of a service, and starts it again after the down
	// time.
	Kill OutageAction = "kill"
	// Stop sends SIGSTOP to all of them, and SIGCONT after the down time: connections stay
	// open, and nothing answers.
	Stop OutageAction = "stop"
	// Restart stops a service by its own way (SIGTERM; of PostgreSQL its fast shutdown), and
	// starts it after the down time.
	Restart OutageAction = "restart"
)

// Limits of outages.
const (
	DefaultDown       = 600 * time.Millisecond
	MaxOutageServices = 64
	MaxOutages        = 100000
	MinOutageEvery    = 10 * time.Millisecond
	maxOutageTime     = 24 * time.Hour
	minDown           = time.Millisecond
	maxOutageJitter   = qdisc.Percent(50)
)

// Outage makes services of labs fail: once, or by a timetable, which is a function of its
// Seed. It ends with all services running.
type Outage struct {
	Action OutageAction
	// Services are LAB/SERVICE, each once, 1..MaxOutageServices; a SERVICE that one lab alone
	// has is given its one name by the agent. Of several, each outage draws one that is not
	// down.
	Services []string
	// Down is how long a killed or stopped one is down before it is put back, 1 ms..24 h, and 0
	// until the fault ends; of a restart the pause between its end and its start, 0 for none.
	Down time.Duration
	// Every is from the beginning of an outage to that of the next, 10 ms..24 h; 0 is one
	// outage. The first is when the fault begins.
	Every time.Duration `json:",omitzero"`
	// Jitter varies each Every by up to this share, either way: 0..50 %.
	Jitter qdisc.Percent `json:",omitzero"`
	// Count is how many outages there are with Every, 0..MaxOutages; 0: until the fault ends.
	Count int `json:",omitzero"`
	// AtMost is how many services are down at once at most, 1..len(Services); 0 means 1. An
	// outage for which there is no room is put off by the timetable, and left out where a
	// service is not back in time.
	AtMost int `json:",omitzero"`
	// Seed is what times and services are drawn with.
	Seed uint64 `json:",omitzero"`
}

// Limit is AtMost with its default.
func (o Outage) Limit() int { return max(1, o.AtMost) }

// Total is how many outages there are, 0 for no end.
func (o Outage) Total() int {
	if o.Every == 0 {
		return 1
	}
	return o.Count
}

// String says it in one phrase: "kill api for 600ms, every 1.5s".
func (o Outage) String() string {
	var b strings.Builder
	b.WriteString(string(o.Action))
	if n := len(o.Services); n > 1 {
		fmt.Fprintf(&b, " one of %d services", n)
	}
	switch {
	case o.Down > 0 && o.Action == Restart:
		fmt.Fprintf(&b, ", %s down", qdisc.FormatDuration(o.Down))
	case o.Down > 0:
		fmt.Fprintf(&b, " for %s", qdisc.FormatDuration(o.Down))
	case o.Action != Restart:
		b.WriteString(" until the fault ends")
	}
	if o.Every > 0 {
		fmt.Fprintf(&b, ", every %s", qdisc.FormatDuration(o.Every))
		if o.Jitter > 0 {
			fmt.Fprintf(&b, " +-%v", o.Jitter)
		}
		if o.Count > 0 {
			fmt.Fprintf(&b, ", %d times", o.Count)
		}
	}
	if o.Limit() > 1 {
		fmt.Fprintf(&b, ", at most %d at once", o.Limit())
	}
	return b.String()
}

// Validate returns everything that is wrong with o, each as a *qdisc.FieldError. It does not
// know the services.
func (o Outage) Validate() []error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	span := func(field string, d, least time.Duration) {
		if d != 0 && (d < least || d > maxOutageTime) {
			refuse(field, qdisc.FormatDuration(d), fmt.Sprintf("0s, or a time from %s to %s", qdisc.FormatDuration(least), qdisc.FormatDuration(maxOutageTime)))
		}
	}
	switch o.Action {
	case Kill, Stop, Restart:
	default:
		refuse("action", string(o.Action), "kill, stop or restart")
	}
	if n := len(o.Services); n == 0 || n > MaxOutageServices {
		refuse("services", strconv.Itoa(n), fmt.Sprintf("1 to %d services, as LAB/SERVICE", MaxOutageServices))
	}
	for i, s := range o.Services {
		lab, name, full := strings.Cut(s, "/")
		switch {
		case lab == "" || full && name == "" || len(s) > 128 || strings.Contains(name, "/") || strings.ContainsAny(s, " ,"):
			refuse("services", s, "a lab's service, as LAB/SERVICE, or SERVICE where one lab alone has it")
		case slices.Contains(o.Services[:i], s):
			refuse("services", s, "each service once")
		}
	}
	span("down", o.Down, minDown)
	span("every", o.Every, MinOutageEvery)
	if o.Jitter < 0 || o.Jitter > maxOutageJitter {
		refuse("jitter", o.Jitter.String(), fmt.Sprintf("a share of each time from 0%% to %v", maxOutageJitter))
	}
	if o.Count < 0 || o.Count > MaxOutages {
		refuse("count", strconv.Itoa(o.Count), fmt.Sprintf("0 (until the fault ends) to %d", MaxOutages))
	}
	if o.AtMost < 0 || o.AtMost > max(1, len(o.Services)) {
		refuse("at-most", strconv.Itoa(o.AtMost), fmt.Sprintf("1 to the number of services, which is %d", len(o.Services)))
	}
	return append(errs, o.validateTimes()...)
}

// validateTimes looks at what must fit together.
func (o Outage) validateTimes() []error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	if o.Every == 0 {
		if o.Jitter != 0 {
			refuse("jitter", o.Jitter.String(), "none without every: there is one outage")
		}
		if o.Count > 1 {
			refuse("count", strconv.Itoa(o.Count), "1 without every, such as every 1.5s")
		}
		return errs
	}
	if o.Every > 0 && o.Action != Restart && o.Down == 0 {
		refuse("down", "0s", "a time above 0s with every: a service that stays down fails once")
	}
	// Else the timetable would be late from its beginning to its end.
	if room := o.Every * time.Duration(o.Limit()); o.Every > 0 && o.Down > room {
		refuse("down", qdisc.FormatDuration(o.Down), fmt.Sprintf("at most %s: every %s, with at most %d down at once", qdisc.FormatDuration(room), qdisc.FormatDuration(o.Every), o.Limit()))
	}
	return errs
}

// validateOutage looks at a fault that is an outage.
func (s Spec) validateOutage() []error {
	errs := s.Outage.Validate()
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	if s.Target != "" || s.Selector != nil {
		refuse("target", s.TargetName(), "none: an outage names services")
	}
	if s.Engine != "" && s.Engine != Auto && s.Engine != Process {
		refuse("engine", string(s.Engine), "process for an outage, or none")
	}
	if s.Direction != "" && s.Direction != To {
		refuse("direction", string(s.Direction), "none for an outage")
	}
	if s.Packet != nil || s.PacketFrom != nil || s.Schedule != nil || s.Content != nil || len(s.Toxics) > 0 || s.Request != nil {
		refuse("fault", "", "an outage of services alone, without another fault")
	}
	if len(s.Force) > 0 {
		refuse("force", strings.Join(s.Force, ", "), "none for an outage")
	}
	if s.Offload != "" {
		refuse("offload", s.Offload, "nothing for an outage")
	}
	if s.Reattach {
		refuse("reattach", "true", "nothing for an outage: a service of that name in a lab made anew is another one")
	}
	return errs
}
