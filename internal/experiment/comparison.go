package experiment

import (
	"time"

	"netemd/internal/fault"
	"netemd/probe"
)

// The layers of a comparison's rows.
const (
	LayerNone         = "none"
	LayerPacket       = "packet"
	LayerProxy        = "proxy"
	LayerProxyLatency = "proxy+latency"
)

// Comparison is the same work measured without a fault, with a fault of the
// packet layer, and through a proxy.
type Comparison struct {
	Target string `json:"target"`
	// Asked says the packet fault in words: "loss 20% to pg".
	Asked string `json:"asked"`
	Rows  []Row  `json:"rows"`
	// Engine carried the packet fault, for EngineReason, at Placement.
	Engine       fault.Engine    `json:"engine"`
	EngineReason string          `json:"engine_reason"`
	Direction    fault.Direction `json:"direction"`
	Placement    []string        `json:"placement"`
	// Kind is the probe's, Calls says in words what a call is, Policy is the name of the
	// client policy around it, empty for none.
	Kind   string `json:"probe"`
	Calls  string `json:"calls"`
	Policy string `json:"policy_name,omitempty"`
	// Count (0: no limit), DurationMS (0: no limit), Concurrency (0: an open loop, whose
	// rates stand in each row's load), PaceMS (the least time between two starts) and
	// TimeoutMS are the same for every row.
	Count       int     `json:"count"`
	DurationMS  float64 `json:"duration_ms,omitempty"`
	Concurrency int     `json:"concurrency"`
	PaceMS      float64 `json:"pace_ms"`
	TimeoutMS   float64 `json:"timeout_ms"`
	// Latency is how the last row's toxic was made; null without that row.
	Latency *Latency `json:"proxy_latency"`
	// Conclusive says whether the rows may be compared; Reasons why not.
	Conclusive bool     `json:"conclusive"`
	Reasons    []string `json:"reasons"`
	// Warnings are what the reader should know beside that.
	Warnings    []string    `json:"warnings"`
	Environment Environment `json:"environment"`
	// Events are what happened to faults meanwhile; they are kept beside the result.
	Events  []Event   `json:"-"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}

// Row is one layer's run.
type Row struct {
	probe.Summary
	// Engine carried the fault, if there was one; Fault says it in words.
	Engine  fault.Engine `json:"engine"`
	Fault   string       `json:"fault"`
	FaultID string       `json:"fault_id,omitempty"`
	// State is what the last look at the fault found.
	State fault.State `json:"fault_state,omitempty"`
	// Loss is null in a row without a packet loss.
	*Loss
	// Counters are the fault's own, null without a packet fault.
	Counters *Counters `json:"counters,omitempty"`
	// ElapsedMS is how long the whole row took.
	ElapsedMS float64 `json:"elapsed_ms"`
	// Samples are kept beside the result, not in it.
	Samples []probe.Sample `json:"-"`
}

// Counters are the packets' part of fault.Counters with the names of the JSON, those of
// netemctl stats.
type Counters struct {
	Seen       uint64 `json:"seen_packets"`
	Lost       uint64 `json:"lost_packets"`
	Overflow   uint64 `json:"overflow_packets"`
	Late       uint64 `json:"late_packets"`
	Refused    uint64 `json:"refused_packets"`
	Delayed    uint64 `json:"delayed_packets"`
	Duplicated uint64 `json:"duplicated_packets"`
	Reordered  uint64 `json:"reordered_packets"`
	Corrupted  uint64 `json:"corrupted_packets"`
	Opened     uint64 `json:"opened_packets"`
	// Errors and Aborted are of requests, which no packet fault has.
	Errors, Aborted uint64 `json:"-"`
}

// PacketCounters are the packets' part of a fault's.
func PacketCounters(c fault.Counters) Counters {
	return Counters{
		Seen: c.Seen, Lost: c.Lost, Overflow: c.Overflow, Late: c.Late, Refused: c.Refused, Delayed: c.Delayed,
		Duplicated: c.Duplicated, Reordered: c.Reordered, Corrupted: c.Corrupted, Opened: c.Opened,
	}
}

// Latency is how the latency toxic was given the packet row's median.
type Latency struct {
	// AddedMS is the toxic's latency, for each turn from the server to the client.
	AddedMS float64 `json:"added_ms"`
	// Turns is the number of the server's answers in a call that the toxic delays,
	// measured by CalibrationCalls calls at CalibrationMS each.
	Turns            float64 `json:"turns_per_call"`
	CalibrationCalls int     `json:"calibration_calls"`
	CalibrationMS    float64 `json:"calibration_latency_ms"`
}

// Environment is where a comparison ran.
type Environment struct {
	Kernel        string `json:"kernel"`
	AgentVersion  string `json:"agent_version"`
	ClientVersion string `json:"client_version"`
	GoVersion     string `json:"go_version"`
	Arch          string `json:"arch"`
	CPUs          int    `json:"cpus"`
}

// Row returns the row of a layer, or nil.
func (c *Comparison) Row(layer string) *Row {
	for i := range c.Rows {
		if c.Rows[i].Layer == layer {
			return &c.Rows[i]
		}
	}
	return nil
}
