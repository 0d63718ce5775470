#!/bin/bash
# Runs go test with root for the tests that need it: as root directly, otherwise
# compiled as this user and run under sudo, which is asked for once.
#   go-test.sh [go test arguments]
# A package that fails is tested once more, alone, when all others are done: its
# timings are measured on a machine that does other things, too. What fails twice is
# red. The virtual machines see to that themselves, suite by suite.
set -euo pipefail

export NETEMD_TEST_ROOT=1 NETEMD_TEST_VMS=1
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# run ARGUMENTS...: go test, with one more try for what fails.
run() {
	local rc=0 failed options=()
	go test "$@" | tee "$output" || rc=$?
	((rc == 0)) && return
	mapfile -t failed < <(awk '$1 == "FAIL" && NF > 2 {print $2}' "$output" | sort -u)
	if ((${#failed[@]} == 0)) || grep -q '^FAIL.*\[\(build\|setup\) failed\]' "$output" || printf '%s\n' "${failed[@]}" | grep -q '/test/vm$'; then
		return "$rc"
	fi
	while (($#)) && [[ $1 != ./... ]]; do options+=("$1"); shift; done
	echo
	echo "go-test: once more, since they failed: ${failed[*]}"
	go test "${options[@]}" "${failed[@]}"
}

if ((EUID == 0)); then
	run "$@"
	exit
fi
command -v sudo >/dev/null || { echo "go-test: the privileged tests need root: run this as root, or install sudo" >&2; exit 1; }
sudo -v
# A run is longer than sudo remembers.
(while sleep 60; do sudo -n -v 2>/dev/null || exit; done) &
refresh=$!
trap 'rm -f "$output"; kill "$refresh" 2>/dev/null || true' EXIT
run -exec "sudo -n -E env PATH=$PATH HOME=$HOME" "$@"
