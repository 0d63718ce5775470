// Package monotonic reads the clock that nobody sets, which all processes of a machine
// share until it boots again: what is written down with it can be compared later.
package monotonic
