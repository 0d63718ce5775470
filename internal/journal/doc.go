// Package journal writes down what is being done to the kernel, so that whoever comes after
// a killed agent knows where to look: what was intended and what stands, until its end.
//
// The file is one line for each record: a checksum (CRC-32C of what follows the space, in
// hexadecimal), a space, and JSON. A record is one write to the end of the file, and is
// whole or told from a whole one. Nothing is synced to a disk: what a process wrote outlives
// its SIGKILL in any file system, and what the record is of does not outlive the machine.
package journal
