package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Defaults and limits of Options.
const (
	DefaultPackets = 10_000
	MinPackets     = 100
	MaxPackets     = 1_000_000
	DefaultRate    = 2_000
	MaxRate        = 20_000
)

// Options say how much is sent.
type Options struct {
	// Packets for each place; 0 means DefaultPackets. MinPackets..MaxPackets.
	Packets int
	// Rate in packets per second; 0 means DefaultRate. 1..MaxRate.
	Rate int
	// AllowExternal also sends on devices whose packets may leave the host. Without it
	// such a place is inconclusive, and nothing is sent.
	AllowExternal bool
}

// Normalize fills the defaults in.
func (o Options) Normalize() Options {
	if o.Packets == 0 {
		o.Packets = DefaultPackets
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	return o
}

// Validate returns all that is out of range, joined.
func (o Options) Validate() error {
	var errs []error
	o = o.Normalize()
	if o.Packets < MinPackets || o.Packets > MaxPackets {
		errs = append(errs, fmt.Errorf("packets: %d: want %d to %d", o.Packets, MinPackets, MaxPackets))
	}
	if o.Rate < 1 || o.Rate > MaxRate {
		errs = append(errs, fmt.Errorf("rate: %d packets per second: want 1 to %d", o.Rate, MaxRate))
	}
	return errors.Join(errs...)
}

// Duration is how long one place takes at most, apart from waiting for what n
// delays.
func (o Options) Duration() time.Duration {
	o = o.Normalize()
	return time.Duration(float64(o.Packets) / float64(o.Rate) * float64(time.Second))
}

// Order is a fault to verify.
type Order struct {
	// Fault is its id, for the result.
	Fault   string
	Engine  fault.Engine
	Options Options
	// Paths are the fault's places; they are verified one after another.
	Paths []Path
}

// Path is one place of a fault, and how packets get there.
type Path struct {
	Place target.Place
	// Netem is the impairment in force.
	Netem qdisc.Netem
	// Between are the ends of a path that leads through the place, as of a lab's wire.
	// With nil the packets are made at the place's device, and captured on it.
	Between *Ends
	// Status reads what the kernel holds there; nil when that cannot be read, and then
	// an overflow cannot be told from a loss.
	Status func(context.Context) (fault.Status, error)
}

// Ends are where packets start and where they arrive.
type Ends struct {
	// Sender is the namespace, a name below /run/netns, in which packets start; empty
	// is the agent's own. Routing there must lead through the place.
	Sender string
	// Receiver is the namespace and Device the device in it on which they arrive.
	Receiver, Device string
}
