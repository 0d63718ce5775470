// Package packaging checks what is installed beside the programs: the unit, the group and
// the configuration.
package packaging
