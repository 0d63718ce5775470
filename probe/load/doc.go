// Package load makes the calls of a probe by a closed or an open loop.
//
// In a closed loop each worker waits for its answer before it asks again, so a
// server that stalls is asked less, and the calls that it would have kept waiting are
// never measured (coordinated omission). In an open loop calls are due by a schedule,
// whatever the others do, and each sample keeps when it was due.
package load
