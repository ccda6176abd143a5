# Everything needed beside Go and make is in go.mod: the tools are its `tool`
# directives and are built on first use.

# Wildcards skip folders named testdata; what tests and benches share lives in one.
PACKAGES = ./... ./testdata/gen/... ./testdata/probe ./testdata/bench
BENCH_PACKAGES = ./replay/jsonl ./replay ./engine/journal ./wire/sock ./wire/client

FUZZTIME  ?= 10s
CRASHTIME ?= 5m
BENCHTIME ?= 1s
BENCHCOUNT ?= 1
DEMO_STATE ?= $(CURDIR)/.demo

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS = $(if $(VERSION),-X main.version=$(VERSION))

# The race detector is linked by a C compiler. Where there is none, check runs
# the same tests without it and says so.
HAVE_CC = $(shell command -v $(firstword $(shell go env CC)) 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help build run test race lint fmt-check vet staticcheck fmt fuzz crash huge bench bench-check bench-packages check check-tests clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/sessiond
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/sessiond ./cmd/sessiond

run: build ## start a daemon with a demo session that grows for a minute (state in .demo)
	bin/sessiond serve --demo --state-dir '$(DEMO_STATE)'

test: ## run all tests
	go test $(PACKAGES)

race: ## run all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race $(PACKAGES)

lint: fmt-check vet staticcheck ## check form and common mistakes

fmt-check:
	@bad=$$(go tool gofumpt -l . ./testdata/gen ./testdata/probe ./testdata/bench) || exit 1; \
	if [ -n "$$bad" ]; then echo "not formatted (make fmt):"; echo "$$bad"; exit 1; fi

# macOS is built and vetted, not tested.
vet:
	go vet $(PACKAGES)
	GOOS=darwin CGO_ENABLED=0 go vet $(PACKAGES)

staticcheck:
	go tool staticcheck $(PACKAGES)

fmt: ## format all files
	go tool gofumpt -w . ./testdata/gen ./testdata/probe ./testdata/bench

# Before Go 1.27 the end of FUZZTIME at times counts as a failure of the target
# (golang/go#75804); one that counts here says something else.
fuzz: ## run every fuzz target for FUZZTIME (10s)
	@set -e; for package in $$(go list $(PACKAGES)); do \
		targets=$$(go test -list '^Fuzz' $$package); \
		for target in $$(echo "$$targets" | grep '^Fuzz' || true); do \
			echo "== $$package $$target"; \
			if out=$$(go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x -timeout 0 $$package 2>&1); \
			then echo "$$out" | tail -n 1; \
			elif [ "$$(echo "$$out" | grep -A1 '^--- FAIL' | tail -n 1)" = '    context deadline exceeded' ]; \
			then echo "ok, ended by the clock"; \
			else echo "$$out"; exit 1; fi; \
		done; \
	done

crash: ## kill the daemon again and again under load for CRASHTIME (5m)
	SESSIOND_STORM=$(CRASHTIME) go test -run '^TestStorm$$' -count 1 -timeout 24h -v ./cmd/sessiond

huge: ## read a sparse session of 4 GB in bounded memory, and let clients come at once
	SESSIOND_HUGE=full go test -run '^TestHuge_' -count 1 -timeout 30m -v ./cmd/sessiond

# The figures depend on the machine: the ratios to a probe in the same run are
# what counts. BENCHFLAGS='-only memory -sizes 100' measures a part of it in
# less time, BENCHFLAGS=-h says more.
bench: build ## measure the daemon and the replay, each beside its probe, and print a table
	@go run ./testdata/bench -bin bin/sessiond $(BENCHFLAGS)

bench-check: build ## the same, and fail when a must is missed
	@go run ./testdata/bench -bin bin/sessiond -check $(BENCHFLAGS)

bench-packages: ## run the benchmarks of single packages, compared by benchstat
	@go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -count $(BENCHCOUNT) -timeout 30m $(BENCH_PACKAGES) >bench.out || { cat bench.out; exit 1; }
	@go tool benchstat bench.out

check: lint check-tests ## all that a change must pass: lint, and the tests with the race detector

ifneq ($(HAVE_CC),)
check-tests: race
else
check-tests: test
	@echo 'note: no C compiler, so the tests ran without the race detector'
endif

clean: ## remove what was built and the demo
	rm -rf bin bench.out '$(CURDIR)/.demo'
