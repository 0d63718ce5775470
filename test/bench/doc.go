// Package bench measures what users wait for: netemd as a process, asked over its socket,
// beside what one would do without it, turn and turn about on the same machine.
//
//	go test -run '^$' -bench Apply ./test/bench
package bench
