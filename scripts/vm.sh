#!/bin/bash
# Runs a command as root in a virtual machine with a kernel that has sch_netem, on
# this machine's own files (read-only, with a tmpfs over them), in this folder.
#   vm.sh 6.1|6.12 COMMAND          the exit code is the command's; 125: no guest
set -euo pipefail

if (($# != 2)); then
	echo "usage: scripts/vm.sh 6.1|6.12 COMMAND, or: make vm CMD='...' KERNEL=6.12" >&2
	exit 2
fi
kernel=$1 command=$2
cd "$(dirname "$0")/.."
go build -o .cache/bin/netemd-vm ./test/vm/run
if ((EUID == 0)); then
	exec .cache/bin/netemd-vm -kernel "$kernel" "$command"
fi
exec sudo -E env PATH="$PATH" HOME="$HOME" .cache/bin/netemd-vm -kernel "$kernel" "$command"
