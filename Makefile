# Everything that a person or CI does here. Needs Go 1.26, make and git; `make
# test` installs the rest, or names all of it at once.

ARGS        ?=
FUZZTIME    ?= 2s
TEST_FLAGS  ?=
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.1
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# The plugins of telegraf that e2e/ needs. All 300 plugins would take many minutes and a gigabyte of modules.
TELEGRAF := custom,inputs.http_listener_v2,parsers.prometheus,outputs.http,serializers.prometheusremotewrite,outputs.opentelemetry

# Modules of our own beside the one at the root, and the packages of all. What runs them does so in
# one workspace, so that one go command compiles and tests all of them. It is not committed: in a
# workspace go.mod has no say of its own about versions, and a clone is to build what go.mod says.
MODULES   := client slogring e2e lab release deploy/helm
PACKAGES  := ./... $(MODULES:%=./%/...)
WORKSPACE := $(CURDIR)/.cache/go.work
ALL       := GOWORK=$(WORKSPACE)

# Tests run what a release has: programs without C. Only the race detector needs it. One value for all targets also
# lets them share what they compile.
export CGO_ENABLED := 0
race compile: export CGO_ENABLED := 1

# Compilers and the linker run without a garbage collector until they have 1 GiB, which few reach. That
# takes a fifth less processor time. The flag does not change what is cached.
ifeq ($(findstring toolexec,$(GOFLAGS)),)
export GOFLAGS := $(shell go env GOFLAGS 2>/dev/null) '-toolexec=env GOGC=off GOMEMLIMIT=1GiB'
endif

# What the race detector watches: adapters and roles, which have the goroutines, and what
# imports one of these packages: they share it, or it has pointers to be checked. The
# Prometheus API is left out, since compiling its 950 packages once more takes longer
# than everything else here together.
RACE = $(shell $(ALL) go list -f '{{.ImportPath}} {{join .Imports " "}} ' ./internal/... ./client ./slogring \
	| grep -E '/(adapter|role)/| (sync|sync/atomic|unsafe) ' | cut -d ' ' -f 1 | grep -v internal/adapter/promapi)

.PHONY: help run build test race fuzz bench lab lint ui edge-demo release-snapshot site pictures check soak kubernetes clean packages clients compile test-e2e test-packages

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' Makefile

run: build ## build freshet and start it; ARGS='--http-listen 127.0.0.1:8000' passes arguments
	./bin/freshet serve $(ARGS)

# -s -w leaves out symbols and debug information, a third of the binary. Stacks and profiles still have
# the names of functions. For a debugger: make build STRIP=
STRIP := -s -w

build: ## build ./bin/freshet
	@test -e bin/freshet || echo "building bin/freshet; the first time takes a few minutes"
	go build -trimpath -ldflags "$(STRIP) -X main.version=$$(git describe --tags --always --dirty 2>/dev/null)" -o bin/freshet ./cmd/freshet

# Tests are built without vet, which lint runs, and without debug information. That saves two minutes.
TEST_BUILD = -vet=off -ldflags=-w

BESIDE = nice -n 10

# Tests of e2e that run once more with the server as a group of one: kills, restarts, backups, broken stores,
# and each way in. `make soak` runs all of them so.
IN_A_GROUP = ^Test(Backup|ABrokenStore|DamagedWAL|KillRounds|Stages|StopOnAFullDisk|TheJournalIsGone|OTLP|DeltaOverOTLP|ARepeatOfDelta|OTLPAddress|FullDiskAndRemoteWrite|PrometheusSends|RestartInPlaceLosesNothing|UpDownCountersSurvive|BenchRemoteWriteFindsWhatItWrote|AcknowledgedSamplesSurvive)$$

# -count=1: e2e/ runs a binary that is not part of the test cache's key.
# Written to a temporary file and then renamed, because CI runs several targets at once.
$(WORKSPACE): Makefile
	@mkdir -p $(@D) && GOWORK=$(@D)/$$$$.work go work init . $(MODULES) && mv $(@D)/$$$$.work $@

test: clients $(WORKSPACE) ## install what the tests need, or name all of it, then run all of them
	$(ALL) go build ./internal/... # once, or the two below would both compile it
	@$(MAKE) --no-print-directory test-e2e & e2e=$$!; \
	$(MAKE) --no-print-directory test-packages; packages=$$?; wait $$e2e && exit $$packages

# e2e waits for half of its time. The other tests run beside it then, and leave it the processors when it wants them:
# first sim and lab, which take minutes and keep one processor busy, or none.
test-e2e:
	$(ALL) go test -C e2e $(TEST_BUILD) -timeout 45m -count=1 $(TEST_FLAGS) .

test-packages:
	$(ALL) $(BESIDE) go test $(TEST_BUILD) -timeout 45m -count=1 $(TEST_FLAGS) $$($(ALL) go list ./sim ./lab $(PACKAGES) | grep -v '/e2e$$')
	$(ALL) $(BESIDE) go test -tags sim $(TEST_BUILD) -timeout 15m -count=1 $(TEST_FLAGS) -run TestMistakesAreFound ./sim ./internal/core/marks ./internal/adapter/tsdb
	FRESHET_GROUP_OF_ONE=1 $(BESIDE) go test -C e2e $(TEST_BUILD) -timeout 10m -count=1 $(TEST_FLAGS) -run '$(IN_A_GROUP)' .
	bash examples/coverage/engine/install
	$(BESIDE) go test -C examples/coverage $(TEST_BUILD) -timeout 5m -count=1 $(TEST_FLAGS) ./...

# -short: tests of many seeds run a few, and none parses 64 MiB. `test` runs all of it.
race: $(WORKSPACE) ## run the tests below internal/, client/ and slogring/ under the race detector, except the Prometheus API's, with buffers overwritten when given back
	$(ALL) go test $(TEST_BUILD) -race -tags poison -short -timeout 15m $(TEST_FLAGS) $(RACE)
	bash examples/coverage/engine/install
	go test -C examples/coverage $(TEST_BUILD) -race -timeout 5m $(TEST_FLAGS) ./...

fuzz: ## run every fuzz test for FUZZTIME (2s)
	@FUZZTIME=$(FUZZTIME) bash .ci/fuzz

bench: $(WORKSPACE) ## run every benchmark; each states its bound in its comment
	$(ALL) go test -run '^$$' -bench . -benchmem ./internal/... ./client ./slogring

# exec: a signal then reaches the lab itself, which prints the results so far.
lab: ## measure what receiving costs, write docs/performance.md; ARGS=--quick: ten minutes, print only
	@go build -C lab -o ../bin/lab . && exec ./bin/lab $(if $(ARGS),$(ARGS),-write)

lint: $(WORKSPACE) ## gofmt, vet, staticcheck, govulncheck
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(ALL) go vet $(PACKAGES)
	$(ALL) go vet -C e2e -tags kubernetes .
	$(ALL) GOGC=400 go run $(STATICCHECK) $(PACKAGES)
	cd examples/coverage && go vet ./... && GOGC=400 go run $(STATICCHECK) ./...
	@GOVULNCHECK=$(GOVULNCHECK) bash .ci/vulncheck

ui: ## build the web page into ui/dist after a change in ui/src, and check its types
	@bash ui/install
	node ui/build.mjs
	ui/node_modules/.bin/tsc --noEmit -p ui

edge-demo: ## a real nginx that counts its requests, a load, and Freshet that shows them
	@bash .ci/packages demo
	@$(MAKE) --no-print-directory build
	@bash lua/demo/run

release-snapshot: ## build all of a release into dist/: binaries, packages, images, SBOMs, checksums
	GOWORK=off go run -C release .

site: ## build the manual as a static site into dist/site
	GOWORK=off go run -C release ./site

pictures: clients ## make docs/pictures again from the real page; takes some minutes
	go test -C e2e $(TEST_BUILD) -count=1 -run '^TestPage$$' .
	GOWORK=off go run -C release ./site -pictures ../.cache/screenshots

check: ## what CI runs: test, lint, race, fuzz, with a table of the times
	@bash .ci/run

soak: clients $(WORKSPACE) ## the same tests with large numbers, then a minute of each fuzz test; about an hour
	FRESHET_SOAK=1 $(ALL) go test -timeout 3h -count=1 -v $(PACKAGES)
	FRESHET_GROUP_OF_ONE=1 go test -C e2e $(TEST_BUILD) -timeout 1h -count=1 .
	FRESHET_SOAK=1 $(ALL) go test -tags sim -timeout 3h -count=1 -v -run TestMistakesAreFound ./sim
	@FUZZTIME=1m FUZZ_ALL=1 bash .ci/fuzz

kubernetes: ## the chart in a real Kubernetes without kubelets; compiles etcd, the API server, kubectl, helm for long
	@mkdir -p .cache/kubernetes
	cd e2e/kubernetes && export GOWORK=off && \
	version=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes) && \
	go build -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o $(CURDIR)/.cache/kubernetes/ tool
	go test -C e2e $(TEST_BUILD) -tags kubernetes -timeout 20m -count=1 -v -run TestChartInKubernetes .

clean: ## remove what was built and installed; ./data stays
	rm -rf bin dist .cache e2e/clients/node/node_modules ui/node_modules

compile: $(WORKSPACE) # builds what race and fuzz run; CI does that while tests wait
	$(ALL) go build -race -tags poison $(RACE)
	go -C examples/coverage build -race -tags poison ./...
	@CGO_ENABLED=0 bash .ci/fuzz compile

packages: # a target's first step, so that a missing package shows at once
	@bash .ci/packages clients cluster lua engine release

# The modules of Prometheus and of telegraf have the versions that ours has where both need
# a module, so that most of it is compiled once.
clients: packages # what e2e/ sends with, and the proxies in front
	@bash e2e/clients/install
	@bash lua/install
	@bash e2e/proxy/install
	GOWORK=off go build -C lab/peers-tsdb/prometheus -tags remove_all_sd -o $(CURDIR)/.cache/prometheus github.com/prometheus/prometheus/cmd/prometheus
	GOWORK=off go build -C lab/peers/statsd_exporter -o $(CURDIR)/.cache/statsd_exporter github.com/prometheus/statsd_exporter
	GOWORK=off go build -C lab/peers/telegraf -tags $(TELEGRAF) -o $(CURDIR)/.cache/telegraf github.com/influxdata/telegraf/cmd/telegraf
