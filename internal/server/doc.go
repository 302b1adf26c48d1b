// Package server is a process with roles: which roles it has, how they are built, joined, started,
// reloaded and restarted in place, and what the process answers over HTTP. It is the only package
// that knows every role. What a role does is in the role's own package.
//
// The files, from the top; each uses names only from those below it:
//
//	serve.go           the command serve: load the configuration, run until a signal
//	roles.go           which roles there are, what each needs, and what builds it
//	ingester.go        the stores and the event log
//	forwarder.go       the queues of other backends
//	distributor.go     the way in for remote write, OTLP and tiles
//	aggregator.go      the journal and the open tiles
//	querier.go         PromQL and the rest of the Prometheus API
//	scraper.go         the process' own metrics, stored
//	prober.go          measures how fresh answers are
//	collector.go       the DogStatsD sockets
//	discard.go         takes windows in place of an aggregator
//	parts.go           what runs in a process, in the order of stopping
//	server.go          the state of a process
//	opening.go         holds windows back while the aggregator opens
//	restarter.go       restart in place
//	reload.go          puts another configuration in force
//	banner.go          the greeting: addresses, and what to try
//	snapshot.go        snapshots, for freshet backup
//	books.go           the ledger: kept across restarts, exported
//	taps.go            lines as they arrive, for freshet tail and capture
//	diffapi.go         what a configuration file would change
//	topapi.go          the busiest metrics and senders
//	limitsapi.go       how far tenants are from their limits
//	process.go         what the process costs
//	explainer.go       what a datagram would become
//	records.go         records of the flight recorder
//	otlp.go            OTLP over gRPC
//	operatorsocket.go  operator.sock
//	listening.go       listening.json: addresses for programs
//	http.go            the HTTP addresses, and the routes
//	readiness.go       whether the server is ready, and what it waits for
//	inherited.go       sockets that were open before this image of the process
//	access.go          who may ask which route
//	operator.go        who is an operator
//	foreign.go         requests from web pages of other origins
//	webconfig.go       TLS and passwords
//	denial.go          why a request is denied
//	request.go         what a request says about its sender
//	catalogue.go       the catalogue of metric names
//	connections.go     the limit of connections
//	memory.go          the limit of memory
//	self.go            stages, traces and the flight recorder, set up
//	stages.go          the metrics of stages
//	log.go             the log
//	build.go           the metric freshet_build_info
package server
