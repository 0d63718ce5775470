// Package arch holds the architecture by tests: which room may import which, what
// netemctl may link, and what every package and file of the tree has or has not.
package arch
