// Package sim simulates a group of whole members on one thread and a virtual clock. Three nodes have
// real replicas and logs on a file system in memory, real tiles, and real databases on a real
// directory, whose background work the simulation calls. A seed decides everything: what senders
// send, what the network loses, which processes are killed and which machines lose power.
//
//	go test ./sim -run TestSim -seed 7 -v
//
// repeats seed 7, and prints its story. core/world has the virtual clock and the network. All files are
// tests:
//
//	run_test.go         the seeds of CI, and the least numbers of events
//	mutants_test.go     the mistakes, in a build with the tag sim
//	sim_test.go         a run
//	faults_test.go      what breaks
//	node_test.go        a node: the process around member.Node, and its log
//	checkpoint_test.go  its checkpoints and notes
//	stores_test.go      the databases of a node, and what a crash leaves of them
//	fills_test.go       disks that are emptied, and nodes that get the data of another one
//	cut_test.go         crashes while databases are cut back, or open
//	senders_test.go     collectors, senders of remote write and of OTLP deltas, readers
//	events_test.go      senders of events, and the event logs
//	rules_test.go       rules, which the leader evaluates
//	oracle_test.go      what must hold
//	golden_test.go      logs of earlier programs, and what they must lead to
package sim
