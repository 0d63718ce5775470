package verify

import (
	"context"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

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
