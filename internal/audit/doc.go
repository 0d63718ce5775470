// Package audit is the log of who did what: a file of JSON lines that is only appended
// to, and rotated by size.
//
// What was refused goes into a file of its own beside it (RefusedPath), with a rotation of
// its own: whoever may do nothing can ask as often as he likes, and must not be able to push
// out what was done by those who may. For the same reason the refusals of one peer are
// bounded in time (Refusals), so that he cannot push out those of another: who tried what,
// from where, how often and until when is what one looks for there, not each of a million
// tries. Whoever may change something can still fill the log by doing so; where that is to be
// kept longer than the rotation, the lines have to be taken to another host.
package audit
