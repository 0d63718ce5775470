#!/bin/bash
# Runs golangci-lint, built into .cache/bin the first time (one to two minutes).
#   lint.sh [arguments of golangci-lint run]
set -euo pipefail

cd "$(dirname "$0")/.."
version=v2.15.0
bin=$PWD/.cache/bin/golangci-lint-$version
if [[ ! -x $bin ]]; then
	echo "lint: building golangci-lint $version" >&2
	mkdir -p "${bin%/*}"
	GOBIN=${bin%/*} GOFLAGS='' go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
	mv "${bin%/*}/golangci-lint" "$bin"
fi
exec "$bin" run "$@"
