#!/bin/bash
# Installs make, git and the distribution's Go on a fresh Debian or Ubuntu, as root.
# That Go is older than what go.mod asks for; with GOTOOLCHAIN=auto it gets the right
# one as a Go module. It must be 1.21 at least for that, which on Debian 12 is in the
# backports of the mirror that apt uses anyway.
set -euo pipefail

export DEBIAN_FRONTEND=noninteractive
command -v go >/dev/null || [[ -x /usr/local/go/bin/go ]] && exit 0
echo "go: apt-get install make git golang-go" >&2
apt-get -q update </dev/null
. /etc/os-release
target=()
candidate() { apt-cache policy golang-go | awk '/Candidate:/{sub(/^[0-9]+:/, "", $2); print $2}'; }
if ! dpkg --compare-versions "$(candidate)" ge 1.21; then
	# Debian's own entry, with the suite's name changed.
	for f in /etc/apt/sources.list.d/*.sources /etc/apt/sources.list; do
		[[ -e $f ]] || continue
		new=/etc/apt/sources.list.d/netemd-backports.${f##*.}
		case $f in
		*.sources) awk -v RS= -v s="$VERSION_CODENAME" '$0 ~ "(^|\n)Suites:[^\n]* ?" s "( |\n|$)" {
			sub(/Suites:[^\n]*/, "Suites: " s "-backports"); print; exit }' "$f" >"$new" ;;
		*) awk -v s="$VERSION_CODENAME" '/^deb / && / main/ { if (sub(" " s " ", " " s "-backports ")) { print; exit } }' "$f" >"$new" ;;
		esac
		[[ -s $new ]] && break
		rm -f "$new"
	done
	apt-get -q update </dev/null
	target=(-t "$VERSION_CODENAME-backports")
fi
apt-get -q install -y --no-install-recommends make git ca-certificates </dev/null
apt-get -q install -y --no-install-recommends "${target[@]}" golang-go </dev/null
