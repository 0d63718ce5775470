# make help says what there is. Go and make are all that must be here before.
SHELL := /bin/bash
export PATH := $(PATH):/usr/local/go/bin
KERNEL ?= 6.12

.PHONY: help build demo test test-long vm generate lint bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' Makefile

build: ## netemd and netemctl into bin/
	go build -o bin/ ./cmd/netemd ./cmd/netemctl

demo: ## PostgreSQL with 20 % loss, beside a proxy: the table, and out/demo/report.html
	scripts/install.sh demo
	$(MAKE) --no-print-directory build
	scripts/demo.sh

test: ## everything: unit and privileged tests, and both netem kernels in a VM
	scripts/install.sh test
	go vet ./...
	scripts/go-test.sh -count=1 -p 1 -timeout 45m ./...

test-long: ## the full matrix and all the packets, here and in the VMs: hours
	scripts/install.sh test
	NETEMD_TEST_LONG=1 scripts/go-test.sh -count=1 -p 1 -timeout 4h ./...

vm: ## CMD='...' as root in a VM with sch_netem; KERNEL=6.1 or 6.12
	@scripts/install.sh test
	@scripts/vm.sh $(KERNEL) $(if $(CMD),'$(subst ','\'',$(CMD))',)

generate: ## the API's Go code from its .proto
	scripts/generate.sh

lint: ## golangci-lint; built the first time
	scripts/lint.sh

bench: ## the benchmarks of every package
	go test -run '^$$' -bench . -benchmem -p 1 ./...

clean: ## what was built, fetched and reported
	rm -rf bin out .cache
