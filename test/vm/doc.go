// Package vm boots a Debian cloud kernel that has sch_netem under QEMU, on this
// machine's own files, and runs a command in it. The kernel package is fetched
// with apt and unpacked, never installed; the host's root is mounted read-only
// with a tmpfs over it, so nothing that runs inside changes the machine.
//
// It needs root (virtiofsd), an amd64 machine, and the packages that
// scripts/install.sh names for "test". Hardware virtualisation is not needed:
// the guest is emulated, which makes its timing slow and coarse.
package vm
