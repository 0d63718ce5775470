#!/bin/bash
# Shows 20 % packet loss on a real PostgreSQL beside what a proxy can do, with an
# agent of its own in a temporary folder, and looks afterwards that nothing is left.
# The exit code is that of the comparison (0, or what netemctl says), or 1 when
# something stayed behind.
#   demo.sh [arguments for netemctl compare]
set -euo pipefail
cd "$(dirname "$0")/.."

if ((EUID)); then
	echo "demo: namespaces need root: sudo" >&2
	exec sudo -E env PATH="$PATH" HOME="$HOME" "$0" "$@"
fi

out=out/demo
dir=$(mktemp -d "${TMPDIR:-/tmp}/netemd-demo.XXXXXX")
chmod 711 "$dir" # PostgreSQL, which is not root, has to get through
export NETEMD_SOCKET=$dir/netemd.sock
agent='' lab='' compare='' code=1

# What this demo could leave on the machine, one thing a line.
state() {
	ip netns list | awk '/^netem-pg-/{print "namespace " $1}'
	ip -o link show | awk -F': ' '{sub(/@.*/, "", $2); print "link " $2}'
	tc qdisc show | awk '{print "qdisc " $2 " at " $5}' | sort -u
	awk -v d="$dir" 'index($8, d) == 1 {print "socket " $8}' /proc/net/unix
	local p exe
	for p in /proc/[0-9]*; do
		exe=$(readlink "$p/exe" 2>/dev/null) || continue
		if [[ $exe == "$PWD"/bin/netem* ]] || tr '\0' ' ' <"$p/cmdline" 2>/dev/null | grep -qF -- "$dir"; then
			echo "process ${p#/proc/} $exe"
		fi
	done
}

finish() {
	trap '' INT TERM HUP
	trap - EXIT
	if [[ -n $compare ]] && kill -INT "$compare" 2>/dev/null; then
		wait "$compare" 2>/dev/null || true
	fi
	if [[ -n $agent ]]; then
		if [[ -n $lab ]] && kill -0 "$agent" 2>/dev/null; then
			timeout 30 bin/netemctl lab down pg >/dev/null || echo "demo: lab down: exit code $?" >&2
		fi
		kill -TERM "$agent" 2>/dev/null || true
		for ((i = 0; i < 300; i++)); do kill -0 "$agent" 2>/dev/null || break; sleep 0.1; done
		kill -KILL "$agent" 2>/dev/null && echo "demo: the agent did not end by itself within 30 s" >&2
		wait "$agent" 2>/dev/null || true
		bin/netemd cleanup --state-dir "$dir" >>"$dir/agent.log" 2>&1 || true
	fi
	local left
	state | sort >"$dir/after" # before comm starts, which names the folder too
	left=$(comm -13 "$dir/before" "$dir/after")
	if [[ -n $left ]]; then
		echo "demo: left behind:" >&2
		echo "$left" >&2
		((code)) || code=1
	else
		echo "Nothing is left behind: namespaces, links, qdiscs, processes and sockets are as before."
	fi
	((code == 0)) || [[ ! -s $dir/agent.log ]] || { echo "demo: the agent's last words:" >&2; tail -n 20 "$dir/agent.log" >&2; }
	rm -rf "$dir"
	if [[ -n ${SUDO_UID:-} && -d out ]]; then chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" out; fi
	exit "$code"
}

state | sort >"$dir/before"
trap finish EXIT
trap 'code=130; exit' INT
trap 'code=143; exit' TERM HUP

# In a session of its own: ctrl-C is for this script, which ends the agent in order.
setsid bin/netemd --state-dir "$dir" --socket "$NETEMD_SOCKET" >"$dir/agent.log" 2>&1 </dev/null &
agent=$!
for ((i = 0; i < 100; i++)); do
	[[ -S $NETEMD_SOCKET ]] && break
	kill -0 "$agent" 2>/dev/null || { echo "demo: the agent ended at once" >&2; exit 1; }
	sleep 0.1
done

lab=pg
bin/netemctl lab up pg
mkdir -p "$out"
code=0
# In the background, so that a signal is seen at once and not after it.
bin/netemctl compare --target pg --loss 20% --out "$out" "$@" </dev/null &
compare=$!
wait "$compare" || code=$?
compare=''
if [[ -s $out/report.html ]]; then
	echo
	echo "The report: $out/report.html        the numbers: $out/result.json"
elif ((code == 0)); then
	echo "demo: no $out/report.html" >&2
	code=1
fi
