// Package audit is the log of who did what: a file of JSON lines that is only appended
// to, and rotated by size.
package audit
