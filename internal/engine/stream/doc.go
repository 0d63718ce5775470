// Package stream carries out stream faults: toxics on the connections that pass a
// proxy in front of a target. The proxy is Toxiproxy, embedded in a child process
// of the agent; this package is its only importer.
//
// # The proxy and its agent
//
// The child serves Toxiproxy's own HTTP API on a unix socket (mode 0600), for the agent, and one
// resource of ours, /netemd/fault. A PUT there replaces everything that the proxy
// does, in one step: the toxics, whether it accepts connections, and the deadline
// at which the child takes all of it away by itself. The agent may be stopped or
// killed at any point without leaving a half-made fault, and no fault outlives its
// deadline or its agent, whose end the child sees on its standard input.
//
// # What happens to connections
//
// The child does not add and remove toxics on the running proxy. It stops that
// proxy and starts a new one of the same name and address that has the wanted
// toxics from the start. So every connection that is accepted meets all toxics,
// Toxiproxy draws the toxicity once for each, reset_peer really resets (it can do so only
// for connections that began with it), and no toxic is ever taken out of a live
// chain, which is what can hang Toxiproxy's API for good.
//
// The price: connections through the proxy are cut when the toxics change, at the
// start of a fault, at its end and at every change, and new ones are refused for
// about a millisecond. Asking for what is already in force cuts none.
//
// # Clients of Toxiproxy, and Toxiproxies of others
//
// Where --serve says so, the child has Toxiproxy's API for its clients, too (front.go): their
// toxics stay over the faults, and what would destroy a fault is refused. The proxies of a
// Toxiproxy that somebody else runs are a Remote's, with a Keeper for the end of the agent.
//
// # What is measured through the proxy
//
// The proxy ends the client's TCP connection and makes one of its own: the client
// sees none of the loss, retransmission or SYN retry behind it. It costs a turn of
// the conversation about 0.15 ms and a connection about 1 ms (BenchmarkRoundTrip,
// BenchmarkConnect; two cores, loopback). A connection that is cut with data for a
// slow reader inside leaves that data in the process, a fault of Toxiproxy 2.12.0;
// the process starts over at the next clear once there are some dozens.
package stream
