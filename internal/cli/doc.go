// Package cli has all commands except serve and bench: commands that send HTTP requests to a server,
// and commands that need no server. It knows a server only by its answers, and imports no role.
//
// The files, from the top; each uses only names of files below it:
//
//	root.go        freshet, with its groups and help
//	restart.go     replace a running server in place
//	backup.go      take a snapshot of a running server
//	cluster.go     found a cluster
//	replace.go     freshet cluster replace: a node comes back with an empty directory
//	recover.go     freshet cluster recover: one node goes on
//	skip.go        an entry of the log that no node can apply, left out
//	restore.go     turn a snapshot into a data directory
//	import.go      bring history along: freshet import
//	importtsdb.go  blocks of Prometheus, Thanos and Mimir
//	importbucket.go  and those in a bucket
//	importread.go  what a server answers to remote read
//	imported.go    list what was imported, and remove it
//	export.go      write stored samples as blocks
//	slices.go      days of a server's samples, each as a block
//	upload.go      send blocks to a server, and compare what it then answers
//	importflags.go flags of commands that import
//	health.go      a probe: say by the exit code whether a server is ready
//	query.go       ask PromQL
//	queryprompt.go  one expression after the other: freshet query -i
//	queryhistory.go  what was asked before
//	queryrun.go    one query, and where its fault is
//	queryadvice.go  why an answer is empty, and what to ask instead
//	events.go      list events
//	ledger.go      show the books
//	cardinality.go  show how many series there are, and what each label costs
//	alerts.go      show the alerts that are pending or fire
//	rules.go       show rules and what they wait for, and check files
//	backtest.go    show when alerts would have fired on stored data
//	backtestrule.go  one alerting rule, evaluated on stored data
//	rulesdiff.go   what files of rules would change on a running server
//	explain.go     say what a datagram would become
//	diagnose.go    say why a server is slow
//	queries.go     show what queries cost, and which are under way
//	senders.go     show who sends
//	top.go         show what is busiest
//	toppage.go     how top lays it out
//	replay.go      send a capture again
//	tail.go        show the lines that arrive
//	capture.go     write what arrives to a file
//	diff.go        what a file would change on a running server
//	check.go       check configuration files
//	config.go      print the configuration in force
//	convert.go     convert another program's configuration
//	convertdashboard.go  and a dashboard of Grafana
//	convertcheck.go  the answers to a dashboard's queries before and after
//	completion.go  scripts for shells
//	names.go       names that a server has
//	version.go     which build this is
//	pages.go       page after page, for --watch
//	stream.go      answers that go on until the client leaves
//	text.go        colours, sizes and times for people
package cli
