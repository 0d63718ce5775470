#!/bin/bash
# Runs go test with root for the tests that need it: as root directly, otherwise
# compiled as this user and run under sudo, which is asked for once.
#   go-test.sh [go test arguments]
set -euo pipefail

export NETEMD_TEST_ROOT=1 NETEMD_TEST_VMS=1
if ((EUID == 0)); then
	exec go test "$@"
fi
command -v sudo >/dev/null || { echo "go-test: the privileged tests need root: run this as root, or install sudo" >&2; exit 1; }
sudo -v
# A run is longer than sudo remembers.
(while sleep 60; do sudo -n -v 2>/dev/null || exit; done) &
refresh=$!
trap 'kill "$refresh" 2>/dev/null || true' EXIT
go test -exec "sudo -n -E env PATH=$PATH HOME=$HOME" "$@"
