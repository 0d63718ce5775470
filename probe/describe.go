package probe

// Describer is a Caller that says what else decides its numbers: the policy of its pool,
// keepalive times, what is switched off. The names are those of settings, with units.
type Describer interface {
	Describe() map[string]string
}

// DatagramCounter is a Caller of numbered packets. It is asked once, after the last call
// has ended and before Close; packets on the way then are waited for.
type DatagramCounter interface {
	Datagrams() Datagrams
}
