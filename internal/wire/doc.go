// Package wire translates between the protobuf messages of the contract and the
// domain's types, in both directions, and between errors and gRPC statuses. It is
// the one place that knows both.
package wire
