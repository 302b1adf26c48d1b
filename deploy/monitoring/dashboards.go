package main

import (
	"fmt"

	"github.com/freshet-io/freshet/internal/core/stage"
)

// dashboard is a Grafana dashboard.
type dashboard struct {
	UID, Title, About string
	Rows              []row
}

// row is a row of panels; its title may be empty.
type row struct {
	Title  string
	Panels []panel
}

// panel is one plot. The constant `of` in its expressions selects the process.
type panel struct {
	Title, About string
	Unit         string // as Grafana spells it
	Queries      []query
}

type query struct{ Expr, Legend string }

// of is a PromQL selector: it selects the process that the user chose in the dashboard.
const of = `job="freshet",instance=~"$instance"`

// about holds the descriptions of the stages, as in docs/stages.md.
var about = [stage.NumStages]string{
	stage.Read:       "Datagrams are read from the kernel's queue, and the body of a request until it is complete.",
	stage.Parse:      "Lines are parsed and counted in the window; a request is decompressed and decoded.",
	stage.Window:     "From the end of a second until its batches are made.",
	stage.Forward:    "Until the aggregator accepts the batches.",
	stage.Journal:    "Until the batches survive the death of the process.",
	stage.Tile:       "Batches are folded into open tiles.",
	stage.Distribute: "Rules and limits are applied, and copies of HA pairs are dropped.",
	stage.Queue:      "Until a worker of the ingester takes the request.",
	stage.Append:     "The samples are appended and committed in the store.",
	stage.Visible:    "The whole way of a sample, from its birth until queries see it.",
}

// quantileNow returns a query for a quantile of a histogram. It covers the time between two points of a
// plot.
func quantileNow(q float64, histogram, selector string, by ...string) string {
	return quantile(q, histogram, selector, "$__rate_interval", by...)
}

func dashboards() []dashboard { return []dashboard{flow(), process()} }

// flow has a row for each stage in the order of the pipeline: rate on the left, latency on the
// right.
func flow() dashboard {
	d := dashboard{
		UID: "freshet-flow", Title: "Freshet / Flow",
		About: "Where the time goes between a sender and a query, stage by stage: rate on the left, latency on the right.",
	}
	d.Rows = append(d.Rows, row{"Seen from outside", []panel{
		{Title: "Freshness, p99", Unit: "s",
			About: "Time from the sending of a sample until a query returns it, measured by a probe every two seconds. " +
				"A datagram waits for the end of the second in which it came.",
			Queries: []query{{quantileNow(0.99, "freshet_freshness_seconds", of, "tenant", "path"), "{{tenant}} {{path}}"}}},
		{Title: "Samples by state", Unit: "cps", About: "What became of the samples, according to the ledger.",
			Queries: []query{{`sum by (state) (rate(freshet_ledger_samples_total{` + of + `}[$__rate_interval])) > 0`,
				"{{state}}"}}},
		{Title: "Lost or refused", Unit: "cps", About: "Empty if nothing is lost or refused.", Queries: []query{
			{`sum(rate(freshet_dogstatsd_kernel_dropped_packets_total{` + of + `}[$__rate_interval]))`,
				"datagrams dropped by the kernel"},
			{`sum by (reason) (rate(freshet_limit_samples_total{` + of + `}[$__rate_interval]))`, "over a limit: {{reason}}"},
			{`sum by (reason) (rate(freshet_distributor_refused_total{` + of + `}[$__rate_interval]))`,
				"requests' samples: {{reason}}"},
			{`sum(rate(freshet_freshness_lost_total{` + of + `}[$__rate_interval]))`, "probes"},
		}},
	}})
	for s := range stage.NumStages {
		in := fmt.Sprintf(`%s,stage=%q`, of, s)
		d.Rows = append(d.Rows, row{"", []panel{
			{Title: s.String() + ": rate", Unit: "cps", About: about[s],
				Queries: []query{{`sum by (input) (rate(freshet_stage_samples_total{` + in + `}[$__rate_interval]))`,
					"{{input}}"}}},
			{Title: s.String() + ": latency", Unit: "s", About: about[s] + " The line is the stage's budget.", Queries: []query{
				{quantileNow(0.5, "freshet_stage_seconds", in, "input"), "{{input}} p50"},
				{quantileNow(0.99, "freshet_stage_seconds", in, "input"), "{{input}} p99"},
				{`max(freshet_stage_budget_seconds{` + in + `}) > 0`, "budget"},
			}},
		}})
	}
	return d
}

// process shows the costs of Freshet, and which parts are close to their limits.
func process() dashboard {
	rate := func(metric string) string { return `sum(rate(` + metric + `{` + of + `}[$__rate_interval]))` }
	now := func(metric string) string { return `sum(` + metric + `{` + of + `})` }
	return dashboard{UID: "freshet-process", Title: "Freshet / Process",
		About: "The costs of Freshet, and what is close to its limit.", Rows: []row{
			{"Processor and memory", []panel{
				{Title: "Processor", Unit: "percentunit", About: "1 is one core.",
					Queries: []query{{rate("process_cpu_seconds_total"), "all"}}},
				{Title: "Memory", Unit: "bytes", About: "Resident memory of the process, and its heap and stacks in use.",
					Queries: []query{
						{now("process_resident_memory_bytes"), "resident"}, {now("go_memstats_heap_inuse_bytes"), "heap"},
						{now("go_memstats_stack_inuse_bytes"), "stacks"},
					}},
				{Title: "Goroutines", Unit: "short", About: "If their number rises without end, some of them wait for ever.",
					Queries: []query{{now("go_goroutines"), "goroutines"}, {now("go_threads"), "threads"}}},
			}},
			{"State", []panel{
				{Title: "Series", Unit: "short", About: "Series in the aggregator, and in the head of each store.",
					Queries: []query{
						{now("freshet_aggregator_series"), "aggregator"},
						{`sum by (tenant, store) (prometheus_tsdb_head_series{` + of + `})`, "{{tenant}} {{store}}"},
					}},
				{Title: "Journal", Unit: "bytes", About: "Size of the journal since the last checkpoint, which a restart reads.",
					Queries: []query{{now("freshet_aggregator_journal_bytes"), "journal"}}},
				{Title: "Requests that wait", Unit: "short", About: "Requests in the ingester's queue.",
					Queries: []query{{now("freshet_ingester_waiting_requests"), "waiting"}}},
			}},
			{"Work", []panel{
				{Title: "Datagrams read", Unit: "pps", About: "Datagrams read from each socket.",
					Queries: []query{{`sum by (listener) (rate(freshet_dogstatsd_packets_total{` + of + `}[$__rate_interval]))`,
						"{{listener}}"}}},
				{Title: "Requests, p99", Unit: "s",
					About:   "Time of remote write and OTLP requests, from the first byte to the answer, by status.",
					Queries: []query{{quantileNow(0.99, "freshet_receive_request_seconds", of, "status"), "{{status}}"}}},
				{Title: "Log", Unit: "cps", About: "Log records by outcome.",
					Queries: []query{{`sum by (outcome) (rate(freshet_log_records_total{` + of + `}[$__rate_interval]))`,
						"{{outcome}}"}}},
			}},
		}}
}
