package service

// What a keeper is asked to do to its service, over its socket.
const (
	// Kill has all of its processes killed, Stop has them stopped (SIGSTOP), Restart has it
	// stopped by its own way. Each is undone after the call's time.
	Kill    = "kill"
	Stop    = "stop"
	Restart = "restart"
	// Back undoes what is under way now, and is answered when the service is back, at once
	// when it is.
	Back = "back"
	// Until moves the deadline.
	Until = "until"
)

// Call is one line to a keeper.
type Call struct {
	// Number comes back in what is told of it.
	Number int    `json:"number"`
	Do     string `json:"do"`
	// DownNS is how long the service is down, 0 until Back; of a Restart the pause between its
	// end and its start, 0 for none.
	DownNS int64 `json:"down_ns,omitempty"`
	// UntilNS is CLOCK_MONOTONIC at which the service is put back whatever happens to who
	// called; 0 for never. The end of the connection puts it back, too.
	UntilNS int64 `json:"until_ns,omitempty"`
}

// What a keeper tells.
const (
	// Down: its processes had their signal; of a Kill none lives any more when it is told. Up: it was started, or let go on. Ready: it
	// answers, as its order asks.
	Down  = "down"
	Up    = "up"
	Ready = "ready"
	// Failed: it is not back as it should be; Refused: nothing was done.
	Failed  = "failed"
	Refused = "refused"
)

// News is one line from a keeper.
type News struct {
	Number int    `json:"number"`
	What   string `json:"what"`
	// PID is the service's first process, 0 for none.
	PID int `json:"pid,omitempty"`
	// MonotonicNS is CLOCK_MONOTONIC of it, UnixNS the time of day.
	MonotonicNS int64  `json:"monotonic_ns"`
	UnixNS      int64  `json:"unix_ns"`
	Error       string `json:"error,omitempty"`
}

// socketName is where a service's keeper takes calls, in its folder: a name that no service has
// for a socket of its own there.
func socketName(name string) string { return name + ".keeper.sock" }
