// Package echo is the contract of the server that testbed.GRPCEcho is.
package echo
