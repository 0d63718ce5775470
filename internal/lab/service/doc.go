// Package service runs the services of labs: each below a process of its own, the
// keeper, inside the service's namespace.
//
// The keeper outlives the agent. It starts the service as its user, writes down what
// it says up to a limit, asks whether it is ready, takes in every process that the
// service leaves behind, knows how it ended, and ends all of it when it is told to
// (SIGTERM). It is a child of this program (internal/child).
package service
