#!/bin/bash
# Installs the distribution packages that "make demo" or "make test" lacks, and says
# so before it does. Debian and Ubuntu; as root, or with sudo.
#   install.sh demo|test
set -euo pipefail

say() { echo "install: $*" >&2; }
die() { say "$*"; exit 1; }

what=${1:-}
case $what in
demo) wanted=(ca-certificates iproute2 postgresql) ;;
test) wanted=(ca-certificates iproute2 postgresql procps kmod xz-utils busybox-static docker.io qemu-system-x86 qemu-system-common protobuf-compiler libprotobuf-dev) ;;
*) die "usage: install.sh demo|test" ;;
esac
# For the pages of reports. Ubuntu has it as a snap only, so there that test is skipped without one.
if [[ $what == test ]] && grep -qs '^ID=debian$' /etc/os-release; then wanted+=(chromium); fi

# Go first: without it the rest is of no use.
command -v go >/dev/null || die "go is not in PATH: Go 1.26 or newer is needed; any Go from 1.21 on (Debian 13: apt-get install golang-go; Debian 12: the same from bookworm-backports) gets it by itself with GOTOOLCHAIN=auto"
version=$(go env GOVERSION 2>&1) || die "Go 1.26 or newer is needed: $version (GOTOOLCHAIN=auto lets a Go from 1.21 on get it by itself)"
case $version in
go1.[0-9].* | go1.1[0-9]* | go1.2[0-5]* | go1.[0-9]) die "Go 1.26 or newer is needed, this is $version: set GOTOOLCHAIN=auto, or install a newer one" ;;
esac

installed() {
	case $1 in
	# Another source may have brought these under another package name.
	docker.io) [[ -x /usr/sbin/dockerd || -x /usr/bin/dockerd ]] ;;
	chromium) command -v chromium >/dev/null || command -v google-chrome >/dev/null ;;
	postgresql) compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ;;
	protobuf-compiler) command -v protoc >/dev/null ;;
	# protoc's own .proto files, such as timestamp.proto; Debian has them here.
	libprotobuf-dev) compgen -G '/usr/include/google/protobuf/timestamp.proto' >/dev/null || compgen -G '/usr/local/include/google/protobuf/timestamp.proto' >/dev/null ;;
	# The package is one of two that have /bin/busybox; only this one needs no library.
	*) [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]] ;;
	esac
}
missing() { for p in "${wanted[@]}"; do installed "$p" || echo "$p"; done; }
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [^(]'; }

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	die "this is not Debian or Ubuntu: install what these packages hold, then run the go commands of the Makefile: ${wanted[*]}"
fi
mapfile -t lacks < <(missing)
# Since QEMU 8 virtiofsd is a package of its own; before, qemu-system-common has it.
needs_virtiofsd() { [[ $what == test && ! -x /usr/lib/qemu/virtiofsd && ! -x /usr/libexec/virtiofsd ]]; }
((${#lacks[@]})) || needs_virtiofsd || exit 0

sudo=()
if ((EUID)); then
	command -v sudo >/dev/null || die "root is needed to install ${lacks[*]}: run this as root, or install sudo"
	sudo=(sudo)
fi
apt() { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null >&2; }

updated=
update() { [[ -n $updated ]] || { updated=1; say "apt-get update"; apt update; }; }
add() {
	say "apt-get install $*"
	local options=(-y --no-install-recommends -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-confdef)
	apt install "${options[@]}" "$@" || { update; apt install "${options[@]}" "$@"; }
}

if ((${#lacks[@]})); then
	say "not here yet: ${lacks[*]}"
	for p in "${lacks[@]}"; do candidate "$p" || update; done
	# Debian's package would start a cluster of its own; ours are temporary ones.
	conf=/etc/postgresql-common/createcluster.conf
	if [[ " ${lacks[*]} " == *" postgresql "* && ! -e $conf ]]; then
		say "writing $conf, so that PostgreSQL comes without a running cluster"
		"${sudo[@]}" install -d -m 755 "${conf%/*}"
		echo 'create_main_cluster = false' | "${sudo[@]}" tee "$conf" >/dev/null
	fi
	# The tests start an engine of their own, in namespaces of its own; the package's service is
	# not to be started for it. Debian's way to say so is policy-rc.d (invoke-rc.d(8)).
	policy=/usr/sbin/policy-rc.d
	if [[ " ${lacks[*]} " == *" docker.io "* && ! -e $policy ]]; then
		say "writing $policy while the packages are installed, so that no service is started"
		printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
		"${sudo[@]}" chmod 755 "$policy"
		trap '"${sudo[@]}" rm -f "$policy"' EXIT
	fi
	add "${lacks[@]}"
fi
if needs_virtiofsd; then
	candidate virtiofsd || update
	add virtiofsd
fi
