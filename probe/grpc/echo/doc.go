// Package echo is the contract of the server that answers the probe of gRPC: a lab's
// service of kind grpc-echo.
package echo
