// Package experiment puts runs of a probe beside each other, with and without a
// fault, and says what may be concluded from them. It plans and runs; it makes
// no fault and no call itself, but through the small interfaces that it declares.
package experiment
