#!/bin/bash
# Writes the Go code of the API and of the testbed's server from their .proto, with Debian's protoc (packages
# protobuf-compiler and libprotobuf-dev) and the Go plugins in the versions that the committed code has.
#   generate.sh [FOLDER]            FOLDER: where to write instead of the tree
set -euo pipefail

cd "$(dirname "$0")/.."
out=${1:-.}
command -v protoc >/dev/null || { echo "generate: protoc is missing: apt-get install protobuf-compiler libprotobuf-dev" >&2; exit 1; }
bin=$PWD/.cache/bin
mkdir -p "$bin"
plugin() { # NAME PACKAGE VERSION
	[[ $("$bin/$1" --version 2>/dev/null) == *" ${3#v}" || $("$bin/$1" --version 2>/dev/null) == *" $3" ]] ||
		GOBIN=$bin GOFLAGS='' go install "$2@$3"
}
plugin protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go v1.36.12
plugin protoc-gen-go-grpc google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.6.2
PATH=$bin:$PATH protoc -I . --go_out="$out" --go_opt=module=netemd \
	--go-grpc_out="$out" --go-grpc_opt=module=netemd api/netem/v1/netem.proto probe/grpc/echo/echo.proto
