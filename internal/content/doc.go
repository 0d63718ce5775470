// Package content chooses packets by what they are: the first SYN, the third data
// segment of a connection, every hundredth packet, or what an expression says. A fault
// made of such a rule does exactly the same thing each time, where a share of lost
// packets is left to chance.
package content
