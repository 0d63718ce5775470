package policy

import "netemd/probe"

// Counts are what policies made of a run's calls. The zero value is ready; it is for one
// goroutine.
type Counts struct {
	// Calls are logical calls, Attempts what was asked of the peer for them, Cancelled
	// those among the attempts that a policy gave up since another one had answered.
	Calls     int `json:"calls"`
	Attempts  int `json:"attempts"`
	Cancelled int `json:"cancelled"`
	// Rejected are the calls for which nothing was asked, Degraded those that a fallback
	// answered.
	Rejected int `json:"rejected"`
	Degraded int `json:"degraded"`
	// Events are counted by policy and event: "breaker opened".
	Events map[string]int `json:"events"`
}

// Add counts a sample.
func (c *Counts) Add(s probe.Sample) {
	c.Calls++
	c.Attempts += len(s.Attempts)
	for _, a := range s.Attempts {
		if a.Class == probe.Cancelled {
			c.Cancelled++
		}
	}
	if s.Class == probe.Rejected {
		c.Rejected++
	}
	if s.Degraded != "" {
		c.Degraded++
	}
	for _, e := range s.Policy {
		if c.Events == nil {
			c.Events = map[string]int{}
		}
		c.Events[e.Policy+" "+e.Event]++
	}
}
