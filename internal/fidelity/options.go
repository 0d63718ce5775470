package fidelity

import (
	"errors"
	"fmt"
	"time"
)

// Defaults and limits of Options.
const (
	DefaultPackets = 10_000
	MinPackets     = 100
	MaxPackets     = 1_000_000
	DefaultRate    = 2_000
	MaxRate        = 20_000
	// MaxDuration is how long the packets of one place may take.
	MaxDuration = time.Hour
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
	if d := o.Duration(); errs == nil && d > MaxDuration {
		errs = append(errs, fmt.Errorf("packets: %d at %d per second take %s: want %s at most", o.Packets, o.Rate, d.Round(time.Second), MaxDuration))
	}
	return errors.Join(errs...)
}

// Duration is how long one place takes at most, apart from waiting for what n
// delays.
func (o Options) Duration() time.Duration {
	o = o.Normalize()
	return time.Duration(float64(o.Packets) / float64(o.Rate) * float64(time.Second))
}
