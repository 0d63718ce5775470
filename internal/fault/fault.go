// Package fault is what a user asks for and what became of it: a packet
// impairment or toxics on a stream, at a target, for a time.
package fault

import (
	"slices"
	"strings"
	"time"

	"netemd/internal/content"
	"netemd/internal/schedule"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Direction is said from the target's side.
type Direction string

// The directions of a packet fault. To is the default: loss 20 % loses 20 % of
// the packets that go to the target.
const (
	To   Direction = "to"
	From Direction = "from"
	Both Direction = "both"
)

// Engine names what carries a fault out.
type Engine string

// The engines. Auto takes Netem where a real try succeeds, EBPF otherwise.
const (
	Auto   Engine = "auto"
	Netem  Engine = "netem"
	EBPF   Engine = "ebpf"
	Stream Engine = "stream"
	// Process ends, stops and starts the services of labs.
	Process Engine = "process"
	// Application is the http-proxies of labs, for requests.
	Application Engine = "application"
)

// Limits of a fault's life.
const (
	DefaultTTL = 10 * time.Minute
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
)

// Spec is what is asked for. Exactly one of Packet, Schedule, Content, Toxics, Outage
// and Request is given.
type Spec struct {
	// Target is a target's name; empty with a Selector.
	Target string
	// Selector is the device and the traffic to impair, instead of a Target.
	Selector *target.Selector
	// Direction of a packet fault; empty means To.
	Direction Direction
	// Engine that shall carry a packet fault; empty means Auto.
	Engine Engine
	// Packet is the impairment of a packet fault. With a Schedule it is what that has in force
	// now, and the agent sets it.
	Packet *qdisc.Netem
	// PacketFrom, if not nil, is the impairment of the packets from the target, and Packet that
	// of those to it: for the direction Both only, where each has a place of its own.
	PacketFrom *qdisc.Netem `json:",omitzero"`
	// Schedule is what the impairment goes by; nil for one that stands.
	Schedule *schedule.Schedule `json:",omitzero"`
	// Profile is the name of the profile that Packet and PacketFrom were made of, for people:
	// empty for none, and after a change. At most 64 bytes.
	Profile string `json:",omitzero"`
	// Content is the rule of a fault that acts on chosen packets only.
	Content *content.Rule
	// Toxics are what a stream fault does to connections through the proxy.
	Toxics []Toxic
	// Outage makes services of labs fail; they stand instead of a Target.
	Outage *Outage `json:",omitzero"`
	// Request is what happens to requests through the target's http-proxy.
	Request *Request `json:",omitzero"`
	// Force names the protections that are lifted: see the Force constants.
	Force []string
	// Offload is OffloadOff to switch segmentation offload off on the devices of the path
	// while the fault lasts, so that it acts on packets as they are on the wire.
	Offload string
	// TTL after which the fault ends by itself; 0 means DefaultTTL. MinTTL..MaxTTL.
	TTL time.Duration
	// Owner is set by the agent from the peer's credentials, for people: "uid 0 (root)".
	Owner string
	// OwnerKey is what owners are told apart by, whatever they are called: "uid:0". The
	// agent sets it, and it is never shown; empty means Owner.
	OwnerKey string
	// RequestID makes a repeated Apply return the first one's fault; empty: none.
	RequestID string
	// Wait is how long to wait for the end of a fault that is in the way; 0 is not at all.
	// 0..MaxTTL.
	Wait time.Duration
	// Within is the id of the held fault beside whose command this one was asked for: the two
	// combine as faults of one owner do, and this one ends with that at the latest. One that
	// does not stand, or is another owner's, is ignored with a warning. At most 128 bytes.
	Within string `json:",omitzero"`
	// Beside is the id of a held fault of the same owner with which this one combines, too,
	// but which it may outlive: several faults of one test, say. At most one of Within and
	// Beside is given; at most 128 bytes.
	Beside string `json:",omitzero"`
	// Process is that of who asks, for people: "pid 4711 (netemctl)". The agent sets it where
	// it knows, and it is not kept.
	Process string `json:",omitzero"`
	// Repair puts the fault back into force when somebody else changed or removed it, a few
	// times at most.
	Repair bool
	// Reattach puts the fault where its target leads by then when its place has gone, as a
	// container's that was restarted has, however often that is; until then nothing is impaired.
	Reattach bool `json:",omitzero"`
	// SSHConnection is SSH_CONNECTION of who asks, "CLIENT-IP PORT SERVER-IP PORT";
	// empty when he is in no ssh session. It is used only to refuse a fault that would
	// cut that session off, and never shown.
	SSHConnection string
}

// TargetName is what the fault is aimed at, for people: the target's name or the
// selector in words.
func (s Spec) TargetName() string {
	if s.Selector != nil {
		return s.Selector.String()
	}
	if s.Outage != nil {
		return strings.Join(s.Outage.Services, ", ")
	}
	return s.Target
}

// Aims are the names of what s is aimed at, by which rules of access and those who clear go: of
// an Outage its services, else the Target.
func (s Spec) Aims() []string {
	if s.Outage != nil {
		return s.Outage.Services
	}
	return []string{s.Target}
}

// Whose is what the owner is told from others by.
func (s Spec) Whose() string {
	if s.OwnerKey != "" {
		return s.OwnerKey
	}
	return s.Owner
}

// Forced reports whether the protection of that name is lifted.
func (s Spec) Forced(name string) bool { return slices.Contains(s.Force, name) }

// Seed is what the place of that index draws with, when seed was asked for. In the
// direction Both the two places would lose the same packets of each direction with one
// seed, so the second, "from", has one of its own, which follows from the first:
// splitmix64's output function (G. L. Steele et al., 2014, "Fast splittable
// pseudorandom number generators") of seed and index, never 0.
func Seed(seed uint64, index int) uint64 {
	if seed == 0 || index == 0 {
		return seed
	}
	x := seed + uint64(index)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return max(1, x^x>>31)
}

// State is where a fault stands in its life.
type State string

// The states of a fault.
const (
	Active  State = "active"
	Lost    State = "lost"
	Drifted State = "drifted"
	Cleared State = "cleared"
	Expired State = "expired"
)

// Fault is one applied fault.
type Fault struct {
	// ID is short and unique: "bqk1", "bqk2". Each agent's life draws its letters anew.
	ID   string
	Spec Spec
	// State is what the last look at the kernel found.
	State State
	// Reason is why it is Lost or Drifted, in the kernel's or the engine's words, or was when
	// it ended; empty for one in force.
	Reason string `json:",omitzero"`
	// Engine is the one that carries it, and EngineReason why that one was taken.
	Engine       Engine
	EngineReason string
	// Placement says where it sits, one phrase for each place.
	Placement []string
	// Proxy is the proxy of somebody else's Toxiproxy that it is on, as an inline target, for
	// who cleans up after a killed agent; empty for any other fault.
	Proxy   string `json:",omitzero"`
	Applied time.Time
	Expires time.Time
	// Warnings are what the user should know about what was asked for.
	Warnings []string
	// Counters add up all places; CountersMissing names those that the engine cannot
	// give here, which are 0 for that reason.
	Counters        Counters
	CountersMissing []string
	// Total is what Counters would be had the fault never been changed.
	Total Counters `json:",omitzero"`
	// Queued are the packets that all places held at the last look.
	Queued uint64
	// Token is of the Hold by which a client holds it, 0 for none. It grows with each Hold
	// of the agent's life, so that an older holder is told from a newer one.
	Token uint64
	// Step is where the fault's schedule is; nil for one without.
	Step *Step `json:",omitzero"`
	// Outages are what an Outage did so far; nil for none.
	Outages *OutageRun `json:",omitzero"`
	// Offloads are the offload settings of the devices of the path, where they matter: of
	// a fault with a loss, a reordering or a rate, or with Spec.Offload.
	Offloads []Offload
}

// OffloadOff is the one value that Spec.Offload can have.
const OffloadOff = "off"

// The protections that a fault needs Force for.
const (
	// ForceAgent: the fault hits a connection by which the agent is controlled.
	ForceAgent = "agent"
	// ForceSSH: the fault hits the ssh session that started the agent or the command.
	ForceSSH = "ssh"
	// ForceDefaultRoute: the fault hits all of a device with a default route.
	ForceDefaultRoute = "default-route"
)

// Counters are packets since the fault was applied, or last changed; of a Request, requests.
type Counters struct {
	// Seen are the selected packets that passed the place, or the selected requests.
	Seen uint64
	// Lost were dropped by the fault; Overflow by a full queue, which is no loss
	// fault.
	Lost, Overflow uint64
	// Late were thrown away since the engine had stood still, and they were too late to be
	// sent; Refused were not taken by the device, as too long for it or since it was down.
	Late, Refused uint64
	// Delayed were held for longer than 0 s.
	Delayed, Duplicated, Reordered, Corrupted uint64
	// Opened passed unimpaired because the engine's heartbeat was late.
	Opened uint64
	// Errors are the requests that were answered with an error, Aborted those that were reset.
	Errors, Aborted uint64 `json:",omitzero"`
}

// Add returns the sum of c and d.
func (c Counters) Add(d Counters) Counters {
	return Counters{
		Seen: c.Seen + d.Seen, Lost: c.Lost + d.Lost, Overflow: c.Overflow + d.Overflow,
		Late: c.Late + d.Late, Refused: c.Refused + d.Refused,
		Delayed: c.Delayed + d.Delayed, Duplicated: c.Duplicated + d.Duplicated,
		Reordered: c.Reordered + d.Reordered, Corrupted: c.Corrupted + d.Corrupted,
		Opened: c.Opened + d.Opened, Errors: c.Errors + d.Errors, Aborted: c.Aborted + d.Aborted,
	}
}

// Since returns what was counted after base was. Where c has counted anew since
// then, that is all of c.
func (c Counters) Since(base Counters) Counters {
	if c.Seen < base.Seen {
		return c
	}
	return Counters{
		Seen: c.Seen - base.Seen, Lost: c.Lost - base.Lost, Overflow: c.Overflow - base.Overflow,
		Late: c.Late - base.Late, Refused: c.Refused - base.Refused,
		Delayed: c.Delayed - base.Delayed, Duplicated: c.Duplicated - base.Duplicated,
		Reordered: c.Reordered - base.Reordered, Corrupted: c.Corrupted - base.Corrupted,
		Opened: c.Opened - base.Opened, Errors: c.Errors - base.Errors, Aborted: c.Aborted - base.Aborted,
	}
}

// Status is what the kernel holds at one place, read back.
type Status struct {
	// Netem is the impairment in force.
	Netem    qdisc.Netem
	Counters Counters
	// Queued are the packets that are held now.
	Queued uint64
	// CountersMissing names the counters that this engine cannot give here.
	CountersMissing []string
	// Reason is why Netem is not what was asked for, where the engine knows; it may say so
	// once only.
	Reason string
}
