#!/bin/sh
# Writes tc.txt: what the tc of this machine sends as TCA_OPTIONS for the netem
# arguments in arguments.txt, one "arguments = hex" a line. Needs root, tc and
# strace; works on a kernel without sch_netem, since the message is sent before
# it is refused. The device is the loopback of a new network namespace.
set -eu
cd "$(dirname "$0")"
{
	echo "# $(tc -V)"
	while read -r arguments; do
		# strace shows the whole message; the options follow 16 + 20 bytes of
		# headers, 12 of TCA_KIND and 4 of TCA_OPTIONS' own header.
		# shellcheck disable=SC2086
		hex=$(unshare -n strace -qq -e trace=sendmsg -e write=all tc qdisc replace dev lo root netem $arguments 2>&1 |
			sed -n 's/^ | [0-9a-f]*  \(.\{49\}\).*/\1/p' | tr -d ' \n' | cut -c105-)
		[ -n "$hex" ] || { echo "no message for: $arguments" >&2; exit 1; }
		case $arguments in # 8 KiB of samples: the sum is enough
		*distribution*) hex=sha256:$(printf %s "$hex" | sha256sum | cut -d' ' -f1) ;;
		esac
		echo "$arguments = $hex"
	done <arguments.txt
} >tc.txt
