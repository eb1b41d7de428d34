# `make help` lists what there is. Needs Go, and for the targets that start real
# brokers a JDK (17 or later) and Maven, which downloads Kafka once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BUILD   := build
BIN     := $(BUILD)/bin
TOOLS   := $(BUILD)/tools
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

GO      ?= go
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# The tools are compiled once from the Go module proxy and kept by version, so that
# everybody and CI judge the code with the same ones.
GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION       := v0.12.0
GOVULNCHECK_VERSION   := v1.9.0
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
GOFUMPT       := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
GOVULNCHECK   := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)

# Limits of one `go test` process. REAL_TIMEOUT is for one package's real-broker tests.
SHORT_TIMEOUT ?= 3m
REAL_TIMEOUT  ?= 20m
FUZZ_TIME     ?= 20s
# Of `make chaos` and `make model`: the same seed deals the same faults, walks the same walks.
SEED          ?= 1
# The packages all of whose tests start brokers: -short leaves nothing of them.
REAL_ONLY     := auth|availability|brokerfaults|conformance|consumers|e2e|failback|lastreplica|mapping|netfaults|placement|policies|readonly|security|sourcefaults|stop|versions

##@ Everyday

.PHONY: help
help: ## Show this text
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z][a-z-]*:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo

.PHONY: build
build: ## Build the static binaries into build/bin
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

.PHONY: demo
demo: build ## Mirror a live cluster onto another one, stop it, compare: prints DEMO OK
	$(GO) build -trimpath -o $(BIN)/demo ./test/demo
	$(BIN)/demo

##@ Tests

.PHONY: test
test: export BEGUN := $(shell date +%s)
test: ## All that CI runs: format, vet, lint, short tests with -race, real-broker tests
	@$(MAKE) --no-print-directory check-format vet
	@$(MAKE) --no-print-directory test-race
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test-real

.PHONY: test-short
test-short: ## Tests that need no Java; under a minute
	$(GO) test -short -timeout $(SHORT_TIMEOUT) ./...

.PHONY: test-race
test-race: ## The same with the race detector
	$(GO) test -short -race -timeout $(SHORT_TIMEOUT) $$($(GO) list ./... | grep -Ev '/test/($(REAL_ONLY))$$')

# Two packages at a time: each starts clusters and spends much of its time waiting for elections,
# sessions and restarts.
.PHONY: test-real
test-real: build ## Every test that -short leaves out, on real brokers (JDK and Maven)
	@GO=$(GO) REAL_TIMEOUT=$(REAL_TIMEOUT) ./scripts/test-real.sh

# The test binary is run by itself, so that the sum is the last line.
CONFORMANCE_PAIRS ?= 4.4/4.4,4.4/3.9,4.3/4.4,4.3/3.9
.PHONY: conformance
conformance: ## Every promise of docs/contract.md on real brokers, 4.3 and 4.4 from 3.9 and 4.4
	@mkdir -p $(BIN) $(BUILD)/reports
	$(GO) test -c -o $(BIN)/conformance.test ./test/conformance
	@cd test/conformance && MIRROR_CONFORMANCE_PAIRS=$(CONFORMANCE_PAIRS) MIRROR_CONFORMANCE_REPORT=$(abspath $(BUILD))/reports/conformance.json \
	  $(abspath $(BIN))/conformance.test -test.timeout 90m

.PHONY: procedures
procedures: ## The operator's procedures in docs/procedures, all of them executed from their pages (minutes)
	MIRROR_PROCEDURES_LONG=1 $(GO) test ./test/procedures -count=1 -v -timeout $(REAL_TIMEOUT)

STEPS ?= 20000000
.PHONY: model
model: ## The state machine of leading in a model of its cluster: every state of small worlds, random walks (STEPS= SEED=)
	$(GO) test ./replica/leading -run '^TestModel' -count=1 -v -timeout 120m -model.long -model.steps=$(STEPS) -model.seed=$(SEED)

.PHONY: mutants
mutants: ## Remove each rule of leading in turn: a test must notice (minutes); docs/safety/mutants.md lists who does
	@mkdir -p $(BUILD)/reports
	$(GO) run ./test/mutants -json $(BUILD)/reports/mutants.json -doc docs/safety/mutants.md

.PHONY: fuzz
fuzz: ## Every fuzz target, FUZZ_TIME each (20s)
	FUZZ_TIME=$(FUZZ_TIME) ./scripts/fuzz.sh

.PHONY: cover
cover: ## Coverage of the short tests: build/cover.html
	@mkdir -p $(BUILD)
	$(GO) test -short -timeout $(SHORT_TIMEOUT) -coverpkg=./... -coverprofile=$(BUILD)/cover.out ./...
	$(GO) tool cover -html=$(BUILD)/cover.out -o $(BUILD)/cover.html
	@$(GO) tool cover -func=$(BUILD)/cover.out | tail -n 1

MINUTES ?= 20
.PHONY: chaos
chaos: build ## Faults of all kinds by a seed, under load, every log read raw (MINUTES=20 SEED=1)
	@mkdir -p $(BUILD)/reports
	$(GO) build -trimpath -ldflags '-X main.commit=$(COMMIT)' -o $(BIN)/chaos ./test/chaos
	@$(BIN)/chaos -minutes $(MINUTES) -seed $(SEED) -report $(BUILD)/reports/chaos-$(SEED).json -keep $(BUILD)/chaos

.PHONY: chaos-selftest
chaos-selftest: build ## A lost, doubled, swapped, diverged and foreign record are planted: chaos must find each
	$(GO) test ./test/chaos/check -count=1
	$(GO) build -trimpath -ldflags '-X main.commit=$(COMMIT)' -o $(BIN)/chaos ./test/chaos
	@$(BIN)/chaos -selftest

# Their short forms are part of `make test`.
SURVIVE := availability placement lastreplica brokerfaults sourcefaults netfaults
.PHONY: survive
survive: ## The long forms of the fault tests: all orders, all pairs of parties, large amounts (an hour)
	MIRROR_FULL=1 $(GO) test $(SURVIVE:%=./test/%) -count=1 -p 1 -v -timeout 60m

.PHONY: versions
versions: ## Every destination and source version, upgrades under load: a table in docs/versions.md (half an hour)
	@mkdir -p $(BUILD)/reports
	MIRROR_FULL=1 MIRROR_VERSIONS_DOC=1 MIRROR_VERSIONS_REPORT=$(abspath $(BUILD))/reports/versions.json $(GO) test ./test/versions -count=1 -v -timeout 90m
	MIRROR_FULL=1 $(GO) test ./test/e2e -run TestMirror43 -count=1 -v -timeout 20m
	MIRROR_FULL=1 $(GO) test ./test/harness -run TestCluster -count=1 -v -timeout 20m

.PHONY: clients
clients: build ## Every stock client and command-line tool, straight at the brokers and through the proxies: must see the same (10 minutes)
	@mkdir -p $(BUILD)/reports
	$(GO) build -trimpath -ldflags '-X main.commit=$(COMMIT)' -o $(BIN)/clients ./test/clients
	@$(BIN)/clients -report $(BUILD)/reports/clients.json

.PHONY: clients-selftest
clients-selftest: build ## A difference is planted in what brokers say: every client must notice
	$(GO) build -trimpath -ldflags '-X main.commit=$(COMMIT)' -o $(BIN)/clients ./test/clients
	@$(BIN)/clients -plant

# Their short forms are part of `make test`.
PROXIES := consumers readonly security mapping
.PHONY: proxies
proxies: ## The long forms of the proxy's tests: older clients, mutual TLS, changes in the middle of consumption (15 minutes)
	MIRROR_FULL=1 $(GO) test $(PROXIES:%=./test/%) -count=1 -p 1 -v -timeout 30m

# The test binary is run by itself, so that the sum is the last line.
.PHONY: security
security: build ## Every link, protocol and mechanism on real clusters as a table; rotation, secrets, mutual TLS in their long forms
	$(GO) test -c -o $(BIN)/security.test ./test/security
	@cd test/security && MIRROR_FULL=1 MIRROR_SECURITY_TABLE=1 $(abspath $(BIN))/security.test -test.timeout 60m

# The test binary is run by itself, so that the sum is the last line.
.PHONY: plugins
plugins: ## The conformance kit on the built-in policies, every example and every scaffold, in Go and Python (minutes)
	@mkdir -p $(BIN)
	$(GO) test -c -o $(BIN)/plugins.test ./test/plugins
	@cd test/plugins && MIRROR_FULL=1 $(abspath $(BIN))/plugins.test -test.v -test.timeout 30m

.PHONY: policies
policies: ## ACLs, configs, groups and quotas by policies, in their long forms: thousands of each, expiry, coordinators killed (half an hour)
	MIRROR_FULL=1 $(GO) test ./test/policies -count=1 -v -timeout 60m

.PHONY: stop
stop: ## A sidecar, its broker or the coordinator goes after each step of a stop (5 minutes)
	MIRROR_STOP_FULL=1 $(GO) test ./test/stop -count=1 -v -timeout 30m

##@ Code

.PHONY: fmt
fmt: $(GOFUMPT) ## Format the code with gofumpt
	$(GOFUMPT) -w .

.PHONY: check-format
check-format: $(GOFUMPT) ## Fail if a file is not formatted
	@out=$$($(GOFUMPT) -l .); if [ -n "$$out" ]; then \
	  echo "not formatted with gofumpt (run make fmt):"; echo "$$out"; exit 1; fi

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) ## golangci-lint with .golangci.yml
	$(GOLANGCI_LINT) run --allow-serial-runners ./...

.PHONY: vulncheck
vulncheck: $(GOVULNCHECK) ## Known vulnerabilities in what is called; VULNCHECK_GO=warn forgives those of the Go that builds
	@GO=$(GO) ./scripts/vulncheck.sh $(GOVULNCHECK)

.PHONY: licenses
licenses: ## What go.mod requires, with licences: docs/licenses.md
	$(GO) run ./test/supply licenses docs/licenses.md

.PHONY: sbom
sbom: build ## What each program is made of, as CycloneDX: build/sbom
	VERSION=$(VERSION) $(GO) run ./test/supply sbom $(BUILD)/sbom $(BIN)/mirror-sidecar $(BIN)/kafka-cluster-mirrors

.PHONY: generate
generate: ## Generate code from the message specs
	$(GO) generate ./...

##@ Benchmarks

.PHONY: bench
bench: bench-throughput bench-proxy ## All benchmarks

.PHONY: bench-throughput
bench-throughput: build ## This system, MirrorMaker 2 and native replication: build/bench/throughput.json
	@mkdir -p $(BUILD)/bench
	$(GO) build -trimpath -ldflags '-X main.commit=$(COMMIT)' -o $(BIN)/bench ./test/bench
	$(BIN)/bench throughput -out $(BUILD)/bench/throughput.json

.PHONY: bench-proxy
bench-proxy: build ## What the proxy costs, with Kafka's own performance tools: build/bench/proxy.json (12 minutes on a quiet machine)
	@mkdir -p $(BUILD)/bench
	$(GO) build -trimpath -ldflags '-X main.commit=$(COMMIT)' -o $(BIN)/bench ./test/bench
	$(BIN)/bench proxy -out $(BUILD)/bench/proxy.json -details $(BUILD)/bench/proxy-details.json

##@ Housekeeping

.PHONY: tools
tools: $(GOLANGCI_LINT) $(GOFUMPT) $(GOVULNCHECK) ## Compile the pinned linters into build/tools

.PHONY: clean
clean: ## Remove what was built, but not the tools
	rm -rf $(BIN) $(BUILD)/bench $(BUILD)/cover.*

# `go install` names the binary after the package, hence the temporary GOBIN and the move.
$(GOLANGCI_LINT):
	@mkdir -p $(TOOLS); echo "compiling golangci-lint $(GOLANGCI_LINT_VERSION), once"
	@GOBIN=$$PWD/$(TOOLS)/.new $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(TOOLS)/.new/golangci-lint $@

$(GOFUMPT):
	@mkdir -p $(TOOLS); echo "compiling gofumpt $(GOFUMPT_VERSION), once"
	@GOBIN=$$PWD/$(TOOLS)/.new $(GO) install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	@mv $(TOOLS)/.new/gofumpt $@

$(GOVULNCHECK):
	@GOBIN=$$PWD/$(TOOLS)/.new $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	@mv $(TOOLS)/.new/govulncheck $@
