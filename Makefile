# Every gate of the project is a target here; CONTRIBUTING.md says when to run which.
# `make verify` is the one to run before a change is handed in.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

GO ?= go
TOOLS := $(CURDIR)/bin/tools
GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
NFPM_VERSION := v2.45.2
NFPM := $(TOOLS)/nfpm-$(NFPM_VERSION)
DATA ?= ./data

# Two packages at a time: the end-to-end packages start brokers of their own. A CI
# machine half as fast as a desk needs six minutes for the longest of them.
TEST_FLAGS ?= -p 2 -timeout 20m
BENCH ?= .
BENCH_TIME ?= 1s
FUZZ_TIME ?= 30s
MODEL_ROUNDS ?= 50

TARGETS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/hardpoint
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/hardpoint ./cmd/hardpoint

.PHONY: run
run: build ## a name server and a broker in one process for this machine, data under ./data
	./bin/hardpoint standalone --dev --data $(DATA) $(ARGS)

.PHONY: cluster
cluster: build ## two name servers and two broker groups, each a process, data under ./data/cluster
	BIN=./bin/hardpoint DATA=$(DATA)/cluster ./examples/cluster/run

.PHONY: test
test: test-main test-plain test-clients ## every unit, conformance and end-to-end test

.PHONY: test-main
test-main: ## the main module under the race detector
	$(GO) test -race $(TEST_FLAGS) ./...

# The race detector allocates. Packages that leave tests out under it say so in a
# file race_on_test.go; here those tests run.
.PHONY: test-plain
test-plain: ## the tests that the race detector cannot run
	dirs=$$(find core plugins sdk -name race_on_test.go | xargs -r -n1 dirname | sed 's|^|./|'); \
	[ -n "$$dirs" ] || { echo "no package has a race_on_test.go: has it been renamed?"; exit 1; }; \
	$(GO) test -run 'Alloc' $(TEST_FLAGS) $$dirs

# The official client has races of its own: it runs without the detector, against
# a broker process that is built with it.
.PHONY: test-clients
test-clients: ## end to end with the official Go client (module test/)
	if [ -f test/go.mod ]; then cd test && $(GO) test $(TEST_FLAGS) ./...; fi

.PHONY: lint
lint: lint-format lint-vet lint-tidy lint-code lint-generated ## every static check

.PHONY: lint-format
lint-format:
	bad=$$(find . -name '*.go' -not -path './bin/*' -print0 | xargs -0 -r gofmt -l); \
	if [ -n "$$bad" ]; then echo "not formatted, run gofmt -w on:"; echo "$$bad"; exit 1; fi

.PHONY: lint-vet
lint-vet:
	$(GO) vet ./...
	if [ -f test/go.mod ]; then cd test && $(GO) vet ./...; fi

.PHONY: lint-tidy
lint-tidy:
	$(GO) mod tidy -diff || { echo "go.mod or go.sum is not tidy, run: go mod tidy"; exit 1; }
	if [ -f test/go.mod ]; then cd test && $(GO) mod tidy -diff; fi

.PHONY: lint-code
lint-code: tools
	$(GOLANGCI) run ./...
	if [ -f test/go.mod ]; then cd test && $(GOLANGCI) run --config ../.golangci.yml ./...; fi

# Whoever generates a committed file has a test TestGenerated... beside the
# generator that generates again and compares.
.PHONY: lint-generated
lint-generated:
	dirs=$$({ grep -rl --include='*_test.go' --exclude-dir=bin --exclude-dir=test '^func TestGenerated' . || true; } | xargs -r -n1 dirname | sort -u); \
	if [ -n "$$dirs" ]; then $(GO) test -run '^TestGenerated' $$dirs; fi

.PHONY: tools
tools: $(GOLANGCI) $(NFPM) ## install the pinned tools into bin/tools

$(GOLANGCI):
	mkdir -p $(TOOLS)
	GOFLAGS= GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(TOOLS)/golangci-lint $(GOLANGCI)

$(NFPM):
	mkdir -p $(TOOLS)
	GOFLAGS= GOBIN=$(TOOLS) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	mv $(TOOLS)/nfpm $(NFPM)

# The same commit gives the same bytes. VERSION is X.Y.Z or X.Y.Z-PRE.RELEASE; without a
# tag it is made of the commit.
.PHONY: dist
dist: $(NFPM) ## what is released, in dist/: archives, deb, rpm, checksums (TARGETS=..., VERSION=...)
	rm -rf dist
	version='$(VERSION)'; \
	[ -n "$$version" ] || version=$$(git describe --tags --exact-match --match 'v*' 2>/dev/null || git log -1 --format=0.0.0-dev.%cd.g%h --date=format:%Y%m%d%H%M%S); \
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(GO) run ./internal/dist -version "$$version" -revision "$$(git rev-parse HEAD)" -nfpm $(NFPM) $(TARGETS)
	ls -l dist

# Tests are compiled for one target of each other system. Those of the module test/
# steer processes by signals that Windows does not have.
.PHONY: cross
cross: ## build every package for the six targets, without cgo; compile the tests for each system
	for t in $(TARGETS); do \
		echo "build $$t"; \
		export CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/}; \
		$(GO) build -o /dev/null ./...; \
		case $$t in darwin/arm64 | windows/amd64) echo "vet $$t"; $(GO) vet ./... ;; esac; \
		case $$t in darwin/arm64) echo "vet $$t in test"; (cd test && $(GO) vet ./...) ;; esac; \
	done

.PHONY: apidiff
apidiff: ## compare the exported API of the stable packages with docs/api
	$(GO) run ./internal/apisurface check

.PHONY: apidiff-accept
apidiff-accept: ## write the exported API of the stable packages to docs/api
	$(GO) run ./internal/apisurface write

.PHONY: conformance
conformance: ## the matrix store x form x facet
	$(GO) run ./internal/conformancematrix

.PHONY: bench
bench: bench-go bench-send ## every benchmark: in process, and at the client port beside the floor

.PHONY: bench-go
bench-go: ## every Go benchmark (BENCH=regexp, BENCH_TIME=1s)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCH_TIME) -p 1 -timeout 60m ./...

.PHONY: bench-send
bench-send: ## at the client port: floor, stores in process and as processes (PARTS=... ROUNDS=...)
	test/bench/run

# Each variable may be given. Root, for the part cold empties the page cache; FILL_GIB (about two
# thirds of the memory) brings a machine that has just started into the state of one that runs.
PEERS := send sync pull latency memory start restart topics jetstream append cold
.PHONY: bench-peers
bench-peers: export APACHE ?= $(CURDIR)/test/interop/lib/server
bench-peers: export PARTS ?= $(shell echo $(PEERS) | tr ' ' ,)
bench-peers: export STORES ?= commitlog
bench-peers: export ROUNDS ?= 5
bench-peers: export SECONDS_EACH ?= 2
bench-peers: ## beside Apache's broker and JetStream, as tables and a page with charts (needs Java and Maven)
	test/bench/run

.PHONY: interop-smoke
interop-smoke: ## the short part of interop, at most six minutes
	test/interop/run smoke

.PHONY: interop
interop: ## official Java client and Apache broker (needs Java and Maven)
	test/interop/run full

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZ_TIME
	$(GO) list -f '{{.Dir}} {{.ImportPath}}' ./... | while read -r dir pkg; do \
		{ grep -hos '^func Fuzz[A-Za-z0-9_]*' "$$dir"/*_test.go || true; } | sed 's/^func //' | while read -r target; do \
			echo "fuzz $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) "$$pkg" </dev/null; \
		done; \
	done

.PHONY: verify
verify: export HARDPOINT_TEST_STRICT := 1
verify: lint test cross apidiff conformance interop-smoke ## all gates

# The rounds that take hours on a small machine: 200 kill -9 rounds a store
# (HARDPOINT_TEST_LONG), 64 clients for ten minutes, ten restarts of brokers under
# load, long random runs of every store against the model
# (HARDPOINT_TEST_ROUNDS), a store of very many queues (HARDPOINT_TEST_QUEUES),
# each fuzz target, the whole of interop.
.PHONY: verify-long
verify-long: verify ## all gates and everything slow
	HARDPOINT_TEST_LONG=1 HARDPOINT_TEST_ROUNDS=$(MODEL_ROUNDS) HARDPOINT_TEST_QUEUES=80000 $(GO) test -count=1 -p 1 -timeout 4h ./...
	if [ -f test/go.mod ]; then cd test && HARDPOINT_TEST_LONG=1 $(GO) test -count=1 -p 1 -timeout 4h ./...; fi
	$(MAKE) fuzz
	$(MAKE) interop
	$(MAKE) dist

.PHONY: clean
clean: ## remove what the targets built
	rm -rf bin dist
