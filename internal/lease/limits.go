package lease

import (
	"fmt"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// The defaults of Limits. Each fault may cost a device, and all are looked at twice a
// second; each Apply that waits costs little.
const (
	MaxFaults  = 256
	MaxWaiting = 64
)

// Limits bound what a Manager holds; 0 is the default.
type Limits struct {
	// Faults are held at once; default MaxFaults. PerOwner are of one owner, default all.
	Faults, PerOwner int
	// Waiting are the Applies that wait for another fault's end, of one owner OwnerShare of
	// them; default MaxWaiting.
	Waiting int
	// TTL is the time to live of a fault that asks for none, default fault.DefaultTTL or
	// MaxTTL where that is less; MaxTTL the longest that is allowed, default fault.MaxTTL,
	// which it cannot exceed.
	TTL, MaxTTL time.Duration
}

func (l Limits) normalize() Limits {
	if l.Faults <= 0 {
		l.Faults = MaxFaults
	}
	if l.PerOwner <= 0 {
		l.PerOwner = l.Faults
	}
	if l.Waiting <= 0 {
		l.Waiting = MaxWaiting
	}
	if l.MaxTTL <= 0 || l.MaxTTL > fault.MaxTTL {
		l.MaxTTL = fault.MaxTTL
	}
	if l.TTL <= 0 {
		l.TTL = fault.DefaultTTL
	}
	l.TTL = min(l.TTL, l.MaxTTL)
	return l
}

// OwnerShare is how many of all that there can be of something that is done for somebody,
// waiting or following, one owner can have: a quarter, so that nobody takes it all, and 1 at
// least.
func OwnerShare(all int) int {
	const owners = 4
	return max(1, all/owners)
}

// checkTTL refuses a time to live that is not allowed here.
func (m *Manager) checkTTL(ttl time.Duration) error {
	if longest := m.cfg.Limits.MaxTTL; ttl > longest && ttl <= fault.MaxTTL {
		return &qdisc.FieldError{
			Field: "ttl", Value: qdisc.FormatDuration(ttl),
			Want: fmt.Sprintf("a time from %s to %s, the most that this agent allows (ttl.max of its configuration)",
				qdisc.FormatDuration(fault.MinTTL), qdisc.FormatDuration(longest)),
		}
	}
	return fault.ValidateTTL(ttl)
}

// checkWait refuses a time to wait that makes no sense.
func (m *Manager) checkWait(wait time.Duration) error {
	if longest := m.cfg.Limits.MaxTTL; wait < 0 || wait > longest {
		return &qdisc.FieldError{
			Field: "wait", Value: qdisc.FormatDuration(wait),
			Want: "a time from 0s to " + qdisc.FormatDuration(longest) + ", the longest that a fault can be in the way",
		}
	}
	return nil
}

// checkRoom refuses one fault more than may be held. The caller holds the lock.
func (m *Manager) checkRoom(s fault.Spec) error {
	l := m.cfg.Limits
	if n := len(m.order); n >= l.Faults {
		return fault.WithHint(fmt.Errorf("%w: %d faults are held, which is the most (limits.faults)", fault.ErrBusy, n), "'netemctl list' shows them")
	}
	mine := 0
	for _, h := range m.order {
		if h.fault.Spec.Whose() == s.Whose() {
			mine++
		}
	}
	if mine >= l.PerOwner {
		return fault.WithHint(fmt.Errorf("%w: %d faults are held by %s, which is the most for one owner (limits.faults_per_owner)", fault.ErrBusy, mine, s.Owner),
			"'netemctl list' shows them")
	}
	return nil
}
