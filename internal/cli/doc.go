// Package cli is netemctl: its commands, what they print and their exit codes.
// Everything that they need of the outside world stands in Env, so that they are
// tested in process.
package cli
