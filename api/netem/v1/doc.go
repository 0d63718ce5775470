// Package netemv1 is the contract between netemctl and netemd: the code that is
// generated from netem.proto.
package netemv1
