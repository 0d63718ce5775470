package probe

// Downtime is a time in which a fault had the processes of the calls' server stopped or ended.
type Downtime struct {
	// FromNS and UntilNS are CLOCK_MONOTONIC, the clock of samples: from the signal to when
	// the server went on, or answered again. UntilNS is 0 while it lasts.
	FromNS, UntilNS int64
}

// Down takes all that is known of the server's downtimes, in place of what was known before.
// It is to come before the Flush that makes the calls of that time final.
func (t *Attributor) Down(all []Downtime) { t.a.Down = all }

// down reports whether the server was down for half of the call's time or more.
func (a Attribution) down(s *Sample) bool {
	var sum int64
	for _, d := range a.Down {
		until := d.UntilNS
		if until == 0 {
			until = s.EndNS
		}
		sum += max(0, min(until, s.EndNS)-max(d.FromNS, s.StartNS))
	}
	return sum > 0 && 2*sum >= s.EndNS-s.StartNS
}
