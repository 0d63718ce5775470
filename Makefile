# make help says what there is. Go and make are all that must be here before.
SHELL := /bin/bash
export PATH := $(PATH):/usr/local/go/bin
KERNEL ?= 6.12
PREFIX ?= /usr/local
BIN ?= bin

.PHONY: help build demo test test-long vm generate lint bench install uninstall clean

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

install: build ## programs, unit and configuration, below PREFIX (/usr/local) and /etc, in DESTDIR
	install -D -m 755 -t '$(DESTDIR)$(PREFIX)/bin' $(BIN)/netemd $(BIN)/netemctl
	install -d '$(DESTDIR)$(PREFIX)/lib/systemd/system'
	sed 's|/usr/bin/|$(PREFIX)/bin/|' packaging/netemd.service >'$(DESTDIR)$(PREFIX)/lib/systemd/system/netemd.service'
	install -D -m 644 packaging/netemd.sysusers '$(DESTDIR)$(PREFIX)/lib/sysusers.d/netemd.conf'
	[[ -e '$(DESTDIR)/etc/netemd/netemd.yaml' ]] || install -D -m 644 packaging/netemd.yaml '$(DESTDIR)/etc/netemd/netemd.yaml'
	@echo 'then: systemd-sysusers && systemctl daemon-reload && systemctl enable --now netemd'

uninstall: ## what install put there; a configuration that was changed stays
	rm -f '$(DESTDIR)$(PREFIX)'/bin/{netemd,netemctl} '$(DESTDIR)$(PREFIX)/lib/systemd/system/netemd.service' '$(DESTDIR)$(PREFIX)/lib/sysusers.d/netemd.conf'
	! cmp -s packaging/netemd.yaml '$(DESTDIR)/etc/netemd/netemd.yaml' || rm -f '$(DESTDIR)/etc/netemd/netemd.yaml'
	[[ ! -d '$(DESTDIR)/etc/netemd' ]] || rmdir --ignore-fail-on-non-empty '$(DESTDIR)/etc/netemd'

clean: ## what was built, fetched and reported
	rm -rf bin out .cache
