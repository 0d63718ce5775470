#!/bin/sh
# Writes what a real tc sends as TCA_OPTIONS for netem arguments, one
# "arguments = hex" a line, with the version of tc above:
#
#   capture.sh          tc.txt: the tc of this machine, Debian 12's, arguments.txt
#   capture.sh trixie   tc-newer.txt: the tc of Debian 13 (trixie), arguments.txt
#                       and what only that one knows, arguments-newer.txt
#
# Needs root, strace and tc, or on Debian apt for the newer one: its packages are
# fetched with a package list of their own, from the mirror that this machine uses, and
# unpacked into a temporary folder. Nothing is installed; tc runs with trixie's
# libraries. It works on a kernel without sch_netem, since the message is sent before
# it is refused. The device is the loopback of a new network namespace.
set -eu
cd "$(dirname "$0")"

tc=tc
target=tc.txt
lists=arguments.txt

fetch() { # suite folder
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' | head -n 1)
	mkdir -p "$2/lists/partial" "$2/archives/partial" "$2/root"
	cat >"$2/suite.sources" <<-END
		Types: deb
		URIs: ${mirror%/}
		Suites: $1
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	END
	packages="iproute2 libbpf1 libc6 libcap2 libdb5.3t64 libelf1t64 libmnl0 libselinux1 libtirpc3t64 libxtables12
		zlib1g libzstd1 libpcre2-8-0 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libcom-err2 libkrb5support0 libkeyutils1 libssl3t64"
	set -- "$1" "$2" -q -o Dir::Etc::sourcelist="$2/suite.sources" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$2/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$2" \
		-o APT::Sandbox::User=root
	folder=$2
	shift 2
	apt-get "$@" update >&2
	# shellcheck disable=SC2086
	(cd "$folder/archives" && apt-get "$@" download $packages >&2)
	for package in "$folder"/archives/*.deb; do
		dpkg -x "$package" "$folder/root"
	done
}

if [ "${1-}" = trixie ]; then
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	fetch trixie "$folder"
	libraries=$(dirname "$(find "$folder/root" -name libmnl.so.0 | head -n 1)")
	tc="$(find "$folder/root" -name 'ld-linux*.so.*' -path '*/lib*' | head -n 1) --library-path $libraries $(find "$folder/root" -path '*bin/tc')"
	TC_LIB_DIR=$(dirname "$(find "$folder/root" -name normal.dist)")
	export TC_LIB_DIR
	target=tc-newer.txt
	lists='arguments.txt arguments-newer.txt'
fi

# shellcheck disable=SC2086
{
	echo "# $($tc -V)"
	cat $lists | while read -r arguments; do
		# strace shows the whole message; the options follow 16 + 20 bytes of
		# headers, 12 of TCA_KIND and 4 of TCA_OPTIONS' own header.
		hex=$(unshare -n strace -qq -e trace=sendmsg -e write=all $tc qdisc replace dev lo root netem $arguments 2>&1 |
			sed -n 's/^ | [0-9a-f]*  \(.\{49\}\).*/\1/p' | tr -d ' \n' | cut -c105-)
		[ -n "$hex" ] || { echo "no message for: $arguments" >&2; exit 1; }
		case $arguments in # 8 KiB of samples: the sum is enough
		*distribution*) hex=sha256:$(printf %s "$hex" | sha256sum | cut -d' ' -f1) ;;
		esac
		echo "$arguments = $hex"
	done
} >"$target"
