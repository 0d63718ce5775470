#!/bin/bash
# Runs go test with root for the tests that need it: as root directly, otherwise
# compiled as this user and run under sudo, which is asked for once.
#   go-test.sh [go test options] ./...
# The virtual machines take most of the time, and wait for most of it: in the short run
# they are beside the other packages, which run one after another. Bounds of time follow
# how late the machine is (internal/testenv).
# A package that fails is tested once more, alone, when all others are done: its
# timings are measured on a machine that does other things, too. What fails twice is
# red. The virtual machines see to that themselves, suite by suite.
set -euo pipefail

export NETEMD_TEST_ROOT=1 NETEMD_TEST_VMS=1
# Where install.sh brings a browser, its absence is a failure.
if grep -qs '^ID=debian$' /etc/os-release; then export NETEMD_TEST_BROWSER=1; fi
# A random test says the seed of what it found; a file of that would be all that the second try looks at.
export RAPID_NOFAILFILE=true
output=$(mktemp) said=$(mktemp)
trap 'rm -f "$output" "$said"' EXIT

# run OPTIONS... ./...: go test, with one more try for what fails.
run() {
	local rc=0 vmrc=0 vm='' failed rest machines options=("${@:1:$#-1}")
	mapfile -t rest < <(go list ./... | grep -v '/test/vm$')
	machines=$(go list ./test/vm)
	echo "go-test: $(date +%T)"
	if [[ -z ${NETEMD_TEST_LONG:-} ]]; then
		# Ctrl-C reaches what runs in the background, but would be ignored there.
		env --default-signal=INT go test "${options[@]}" "$machines" >"$said" 2>&1 &
		vm=$!
	fi
	go test "${options[@]}" "${rest[@]}" | tee "$output" || rc=$?
	echo "go-test: $(date +%T), all but the virtual machines"
	if [[ -n $vm ]]; then
		wait "$vm" || vmrc=$?
		cat "$said"
	else
		go test "${options[@]}" "$machines" || vmrc=$?
	fi
	echo "go-test: $(date +%T), the virtual machines"
	mapfile -t failed < <(awk '$1 == "FAIL" && NF > 2 {print $2}' "$output" | sort -u)
	if ((rc != 0 && ${#failed[@]} > 0)) && ! grep -q '^FAIL.*\[\(build\|setup\) failed\]' "$output"; then
		echo
		echo "go-test: once more, since they failed: ${failed[*]}"
		rc=0
		go test "${options[@]}" "${failed[@]}" || rc=$?
	fi
	((rc == 0)) || return "$rc"
	return "$vmrc"
}

if [[ ${*: -1} != ./... ]]; then
	echo "usage: go-test.sh [go test options] ./..." >&2
	exit 2
fi
if ((EUID == 0)); then
	run "$@"
	exit
fi
command -v sudo >/dev/null || { echo "go-test: the privileged tests need root: run this as root, or install sudo" >&2; exit 1; }
sudo -v
# A run is longer than sudo remembers.
(while sleep 60; do sudo -n -v 2>/dev/null || exit; done) &
refresh=$!
trap 'rm -f "$output" "$said"; kill "$refresh" 2>/dev/null || true' EXIT
run -exec "sudo -n -E env PATH=$PATH HOME=$HOME" "$@"
