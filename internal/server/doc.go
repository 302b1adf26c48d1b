// Package server is a process with roles: which it has, how they are built, joined, started,
// reloaded and restarted in place, and what the process answers over HTTP. It is the only
// package that knows every role; what the roles do is theirs.
//
// The files, from the top; each uses names of those below it:
//
//	serve.go           the command serve: load the configuration, run until a signal
//	roles.go           which roles there are, what each needs, and what builds it
//	ingester.go        the stores, and the log of events beside them
//	forwarder.go       the queues of other backends
//	distributor.go     the way in of remote write and OTLP, and of tiles
//	aggregator.go      the journal and the open tiles
//	querier.go         PromQL and the rest of the Prometheus API
//	scraper.go         the process' own metrics, stored
//	prober.go          how fresh answers are, measured
//	collector.go       the DogStatsD sockets
//	discard.go         what takes windows where there is no aggregator
//	server.go          what a process has, and the parts that it runs
//	opening.go         what takes windows while the aggregator is opened
//	restarter.go       restart in place
//	reload.go          another configuration, put in force
//	banner.go          the greeting, which tells people the addresses and what to try
//	snapshot.go        snapshots, for freshet backup
//	books.go           the ledger, kept across restarts and told
//	taps.go            lines as they arrive, for freshet tail and capture
//	diffapi.go         what a configuration file would change
//	topapi.go          what is busiest
//	limitsapi.go       how far tenants are from their limits
//	process.go         what the process costs
//	explainer.go       what a datagram would become
//	records.go         records of the flight recorder
//	otlp.go            OTLP over gRPC
//	operatorsocket.go  operator.sock
//	listening.go       listening.json, which tells programs the addresses
//	http.go            the HTTP addresses, and the routes
//	readiness.go       whether the server is ready, and what it waits for
//	inherited.go       sockets that were open before this image of the process
//	access.go          who may ask which route
//	operator.go        who is an operator
//	foreign.go         requests of web pages of others
//	webconfig.go       TLS and passwords
//	denial.go          why a request is denied
//	request.go         what a request says of itself
//	catalogue.go       the catalogue of metric names
//	connections.go     how many connections there may be
//	memory.go          how much memory there may be
//	self.go            stages, traces and the flight recorder, set up
//	stages.go          the metrics of stages
//	log.go             the log
//	build.go           the metric freshet_build_info
package server
