// Package server is a process with roles. It builds, connects, starts and reloads the roles, restarts
// the process in place, and answers over HTTP. It is the only package that knows every role. The work
// of a role is in the role's own package.
//
// The files are listed from the highest layer to the lowest. A file uses only names that are declared in
// files below it, except for the fields that a method takes from its receiver. The files of the process:
//
//	serve.go           the command serve: load the configuration, run until a signal
//	server.go          the state of a process, and the steps before the sockets are read
//	parts.go           the parts that run in a process, in the order of stopping
//	start.go           the steps of a start: roles, stores in use, the announcement
//	banner.go          the greeting: addresses, and commands to try
//	discard.go         takes windows in place of an aggregator
//
// Its answers:
//
//	handler.go         every HTTP route and its handler
//	reload.go          puts another configuration in force
//	restart.go         restart in place
//	diffapi.go         the changes that a configuration file would make
//	limitsapi.go       how far tenants are from their limits
//	topapi.go          the busiest metrics and senders
//	sendersapi.go      the senders: their rates and lags, and what is refused
//	queriesapi.go      what queries cost, and which are under way
//	explainer.go       explains the fate of a datagram's lines
//	taps.go            lines as they arrive, for freshet tail and capture
//	process.go         the costs of the process
//	metrics.go         /metrics: of the process, or of one tenant
//	books.go           the ledger: kept across restarts, exported
//	sums.go            figures of all nodes of a cluster, and of its collectors
//	self.go            sets up stages, traces and the flight recorder
//	records.go         records of the flight recorder
//
// The roles:
//
//	roles.go           all roles, with the needs of each and the function that builds it
//	prober.go          measures how fresh answers are
//	scraper.go         the process' own metrics, stored
//	querier.go         PromQL and the rest of the Prometheus API
//	ruler.go           rules and alerts
//	rulesets.go        rules set by the API
//	clusterrulesets.go rules set by the API in a cluster
//	clusterrules.go    rules in a cluster
//	group.go           the log of a group of one, in place of the journal
//	takeover.go        gives the data of one machine to a cluster
//	aggregator.go      the journal and the open tiles
//	distributor.go     the entry for remote write, OTLP and tiles
//	forwarder.go       the queues of other backends
//	ingester.go        the stores and the event log
//	sharing.go         what a process tells the leader: its use of limits, and its books
//	collector.go       the DogStatsD sockets
//	catalogue.go       the catalogue of metric names
//	filling.go         gives data to a node that joins, and gets them
//	snapshot.go        snapshots, for freshet backup
//	clusterhistory.go  imports into a cluster, and removals
//	clusterblocks.go   the imported blocks of a node, as the log says
//	history.go         imported blocks, for freshet import
//	gateway.go         requests that go on to the nodes
//	members.go         replaces and removes nodes
//	healing.go         damaged data are replaced by those of another node
//	cluster.go         a node's place in its cluster: joining, handing over
//	clusterstatus.go   how the nodes of the cluster are
//	nodes.go           what nodes ask each other
//	delivered.go       up to when the log has the windows of collectors
//	belonging.go       to which cluster a collector belongs
//	collectorbooks.go  the books that collectors told this node
//
// Addresses, and the rights of clients at them:
//
//	readiness.go       whether the server is ready, or why not
//	opening.go         holds windows back while the aggregator opens
//	listening.go       listening.json: addresses for programs
//	otlp.go            OTLP over gRPC
//	operatorsocket.go  operator.sock
//	access.go          the tenant of a request, and its rights
//	operator.go        which requests come from operators
//	foreign.go         requests from web pages of other origins
//	exposure.go        every HTTP route, and which clients may ask it
//	denial.go          the reasons for which requests are denied
//	http.go            the HTTP addresses
//	request.go         the sender of a request
//	inherited.go       sockets that were open before this image of the process
//	connections.go     the limit of connections
//	webconfig.go       TLS and passwords
//
// At the bottom:
//
//	stop.go            the time between a signal and the stop of the parts
//	disk.go            the free space of the disk, and what tenants take
//	damage.go          what of this node's data is damaged, and entries that it cannot apply
//	eventlog.go        the event log of a node, and its damage
//	config.go          the configuration in force, and the roles that it gives
//	datadir.go         the data directory: its lock, its paths, small files
//	memory.go          the limit of memory
//	stages.go          the metrics of stages
//	log.go             the log
//	build.go           the metric freshet_build_info
package server
