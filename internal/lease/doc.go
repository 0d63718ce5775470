// Package lease holds the faults: who asked for which, until when, what may
// stand beside what, and their end. It declares the Engine that it needs.
package lease
