package main

import "strings"

// alert is a condition that needs a person's attention. docs/operations.md says what to do, under the
// same name.
type alert struct {
	Name     string
	Expr     string
	For      string // how long the condition must hold; empty: alert at once
	Severity string // page or ticket
	Summary  string
}

var alerts = []alert{
	{"FreshetDown", `up{job="freshet"} == 0`, "2m", "page",
		"Prometheus cannot scrape {{ $labels.instance }}: samples that clients send to it may be lost."},
	{"FreshetDatagramsDropped", `rate(freshet_dogstatsd_kernel_dropped_packets_total[5m]) > 0`, "5m", "page",
		"The kernel drops {{ $value | humanize }} datagrams a second at {{ $labels.instance }}: " +
			"Freshet does not read them fast enough."},
	{"FreshetDiskRefusesWrites", `rate(freshet_aggregator_journal_errors_total[5m]) > 0
or rate(freshet_aggregator_store_errors_total[5m]) > 0
or rate(freshet_aggregator_checkpoint_errors_total[15m]) > 0`, "1m", "page",
		"{{ $labels.instance }} cannot write to its disk: windows wait in memory, and are lost when " +
			"the memory for them is full."},
	{"FreshetDiskFills", `freshet_disk_free_bytes < 0.4 * freshet_disk_size_bytes
and predict_linear(freshet_disk_free_bytes[12h], 4 * 86400) < freshet_disk_min_free_bytes
and time() - process_start_time_seconds > 21600`, "1h", "ticket",
		"The disk of {{ $labels.instance }} has {{ $value | humanize1024 }}B left, and at the pace of the last 12 hours " +
			"too little within 4 days."},
	{"FreshetDiskNearlyFull", `freshet_disk_free_bytes < freshet_disk_min_free_bytes`, "1m", "page",
		"The disk of {{ $labels.instance }} has only {{ $value | humanize1024 }}B left. If that is so on two of three " +
			"nodes, the cluster takes no more data."},
	{"FreshetSamplesLost", `increase(freshet_dogstatsd_unsent_samples_total[10m]) > 0
or increase(freshet_dogstatsd_refused_samples_total[10m]) > 0`, "", "page",
		"{{ $labels.instance }} lost {{ $value | humanize }} samples that it had received; its log says why."},
	{"FreshetBooksDiffer", `freshet_ledger_difference != 0`, "2m", "ticket",
		"In the ledger of tenant {{ $labels.tenant }} at {{ $labels.instance }}, {{ $value }} samples are missing. " +
			"This is a bug: report it."},
	{"FreshetTileConflicts", `increase(freshet_store_tile_conflicts_total[10m]) > 0`, "", "ticket",
		"{{ $labels.instance }} wrote a tile twice, with different values. This is a bug: report it with the log."},
	{"FreshetJournalGrows", `freshet_aggregator_journal_bytes > 1e9
and increase(freshet_aggregator_checkpoints_total[15m]) == 0`, "5m", "ticket",
		"{{ $labels.instance }} has written no checkpoint for 15 minutes; a restart would read " +
			"{{ $value | humanize1024 }}B."},
	{"FreshetLimitReached", `sum by (instance, tenant, reason) (rate(freshet_limit_samples_total[5m])) > 0`, "5m",
		"ticket",
		"New series of tenant {{ $labels.tenant }} at {{ $labels.instance }} are folded or refused: {{ $labels.reason }}."},
	{"FreshetCardinalityExplodes", `rate(freshet_dogstatsd_new_contexts_total[5m]) > 1000`, "5m", "ticket",
		"{{ $value | humanize }} new series a second at {{ $labels.instance }}: a client writes values into labels."},
	{"FreshetLateSamples", `rate(freshet_aggregator_late_samples_total[10m])
> 0.01 * rate(freshet_aggregator_journalled_samples_total[10m])`, "10m", "ticket",
		"More than 1 % of the samples at {{ $labels.instance }} come after their tile was closed: a clock is wrong, " +
			"or the machine is overloaded."},
	{"FreshetMalformedLines", `sum by (instance, reason) (rate(freshet_dogstatsd_malformed_lines_total[10m])) > 1`, "10m",
		"ticket",
		"{{ $value | humanize }} lines a second are malformed ({{ $labels.reason }}) at {{ $labels.instance }}: " +
			"a client sends wrong lines."},
	{"FreshetStoreRefusesSamples", `sum by (instance, store, reason) (rate(freshet_store_samples_refused_total[10m])) > 0`,
		"10m", "ticket",
		"Store {{ $labels.store }} at {{ $labels.instance }} refuses samples: {{ $labels.reason }}."},
	{"FreshetReloadFailed", `freshet_config_last_reload_successful == 0`, "5m", "ticket",
		"{{ $labels.instance }} keeps its last valid configuration, because the present file is invalid; its log says why."},
	{"FreshetBlockCorrupted", `increase(prometheus_tsdb_reloads_failures_total[15m]) > 0`, "15m", "page",
		"A block of {{ $labels.tenant }}/{{ $labels.store }} at {{ $labels.instance }} cannot be read; the log names it."},
	{"FreshetStoreBroken", `freshet_store_broken > 0`, "1m", "page",
		"Store {{ $labels.store }} of tenant {{ $labels.tenant }} at {{ $labels.instance }} cannot be opened: " +
			"it answers no queries and accepts no samples."},
	{"FreshetStoreDamaged", `freshet_store_damaged > 0`, "", "page",
		"A file of store {{ $labels.store }} of tenant {{ $labels.tenant }} at {{ $labels.instance }} is damaged; its log " +
			"names the file."},
	{"FreshetGroupLogDamaged", `freshet_group_log_damaged > 0`, "", "page",
		"The log of the group at {{ $labels.instance }} is damaged: the next start of this process would end."},
	{"FreshetTilesWait", `freshet_aggregator_pending_seconds > 60`, "1m", "page",
		"The store of tenant {{ $labels.tenant }} at {{ $labels.instance }} accepts no samples: tiles wait, " +
			"and new samples are refused once store.pending is reached."},
	{"FreshetLogCut", `freshet_store_wal_cut_bytes_total > 0`, "", "ticket",
		"{{ $value | humanize1024 }}B of the log of {{ $labels.tenant }}/{{ $labels.store }} at {{ $labels.instance }} " +
			"were damaged and removed: samples are lost."},
	{"FreshetJournalMissing", `freshet_aggregator_journal_missing > 0`, "", "ticket",
		"{{ $labels.instance }} found stores but no journal at its start: the totals of counters restarted at 0."},
	{"FreshetPacketsTooLong", `increase(freshet_dogstatsd_oversized_packets_total[15m]) > 0`, "", "ticket",
		"{{ $labels.instance }} drops datagrams that are longer than dogstatsd.max_packet."},
	{"FreshetRequestsRefused", `sum by (instance, reason) (rate(freshet_distributor_refused_total[10m])) > 0`, "10m",
		"ticket",
		"{{ $value | humanize }} samples a second of remote write and OTLP are refused at {{ $labels.instance }}: " +
			"{{ $labels.reason }}."},
	{"FreshetSendersWait", `sum by (instance, reason) (rate(freshet_distributor_retries_total[5m])) > 0`, "10m", "page",
		"{{ $labels.instance }} tells senders of remote write and OTLP to retry: {{ $labels.reason }}. " +
			"Their queues will fill up."},
	{"FreshetBackendBehind", `freshet_forwarder_oldest_seconds > 300`, "5m", "ticket",
		"The queue of {{ $labels.instance }} for backend {{ $labels.backend }} is {{ $value | humanizeDuration }} behind. " +
			"When it is full, the oldest samples are lost."},
	{"FreshetOutboxWaits", `freshet_outbox_oldest_seconds > 60`, "1m", "page",
		"Windows wait at {{ $labels.instance }}, since no node of the cluster acknowledges them. " +
			"When the outbox is full, the oldest samples are lost."},
	{"FreshetStale", "(" + quantile(0.99, "freshet_freshness_seconds", "", "5m", "instance", "tenant", "path") + `) > 2
or sum by (instance, tenant, path) (rate(freshet_freshness_lost_total[5m])) > 0`, "5m", "page",
		"Queries see samples of tenant {{ $labels.tenant }} that come to {{ $labels.instance }} by {{ $labels.path }} " +
			"late, or never."},
	{"FreshetStageOverBudget", "(" + quantile(0.99, "freshet_stage_seconds", "", "5m", "instance", "stage") + `)
> on (instance, stage) (freshet_stage_budget_seconds > 0)`, "10m", "ticket",
		"Stage {{ $labels.stage }} of {{ $labels.instance }} takes {{ $value | humanizeDuration }}, more than its budget. " +
			"To see why, run freshet diagnose --last."},
	{"FreshetLogLost", `sum by (instance) (rate(freshet_log_records_total{outcome=~"lost|failed"}[5m])) > 0`, "5m",
		"ticket",
		"{{ $labels.instance }} loses {{ $value | humanize }} log lines a second: nobody reads the pipe of the log, " +
			"or its disk is full."},
	{"FreshetNoLeader", `freshet_group_has_leader == 0`, "10s", "page",
		"{{ $labels.instance }} knows no leader of its cluster: it takes no writes, and answers queries only in part."},
	{"FreshetMemberLags", `freshet_group_lag_seconds > 5`, "1m", "page",
		"{{ $labels.instance }} lags {{ $value | humanizeDuration }} behind its cluster: it is not ready, and if another " +
			"node fails, writes stop."},
	{"FreshetTwoVoters", `freshet_group_voters == 2`, "1h", "ticket",
		"Two nodes vote in the cluster of {{ $labels.instance }}: writes stop whenever one of them is away. Let another " +
			"node join, or remove one."},
	{"FreshetLearnerStays", `freshet_group_learners > 0`, "1h", "ticket",
		"A node in the cluster of {{ $labels.instance }} has been a learner for an hour: it does not catch up, or it is " +
			"away. freshet cluster status names it."},
	{"FreshetNodeDrained", `freshet_group_drained > 0`, "1d", "ticket",
		"{{ $labels.instance }} has been drained for a day. freshet cluster undrain ends that."},
	{"FreshetGroupLogLarge", `freshet_group_log_bytes > 3e9`, "5m", "ticket",
		"The log of the group at {{ $labels.instance }} has {{ $value | humanize1024 }}B: checkpoints fail, or a store " +
			"cannot be synced."},
	{"FreshetGroupLogPinned", `freshet_group_log_pins > 0`, "15m", "ticket",
		"Old entries stay in the log of the group at {{ $labels.instance }}, which grows: checkpoints fail, or stores " +
			"cannot be synced. Or a node is being filled."},
	{"FreshetFillLasts", `max by (node) (freshet_cluster_node_fill_seconds) > 21600`, "", "ticket",
		"Node {{ $labels.node }} has been getting the data of another node for {{ $value | humanizeDuration }}."},
	{"FreshetFillFails", `max by (node) (freshet_cluster_node_fill_failures) > 0`, "15m", "ticket",
		"Node {{ $labels.node }} cannot get the data of another node: {{ $value }} tries failed."},
	{"FreshetHistoryMissing", `freshet_history_missing_blocks > 0`, "15m", "ticket",
		"{{ $labels.instance }} lacks {{ $value }} imported blocks: its answers over their times have a warning."},
	{"FreshetGroupLogSlow", "(" + quantile(0.99, "freshet_group_log_append_seconds", "", "5m", "instance") + `) > 0.5`,
		"5m", "ticket",
		"A write to the log of the group takes {{ $value | humanizeDuration }} at {{ $labels.instance }}: its disk is slow."},
	{"FreshetNodesDiffer", `max by (node) (freshet_cluster_node_differs) > 0`, "", "page",
		"The state of node {{ $labels.node }} differs from the other nodes' states. This is a bug: report it, and send " +
			"writes and queries to the other nodes."},
	{"FreshetNodeDamaged", `max by (node) (freshet_cluster_node_damaged) > 0`, "", "page",
		"Data of node {{ $labels.node }} are damaged: it does not answer what it cannot, and if another node fails, " +
			"answers stop. freshet cluster status says what is damaged, and why the node does not heal, if it does not."},
	{"FreshetClocksApart", `abs(freshet_cluster_clock_ahead_seconds) > 1`, "2m", "ticket",
		"The clock of {{ $labels.instance }} is {{ $value | humanizeDuration }} off the other nodes' clocks. From 2 s on " +
			"it cannot lead."},
	{"FreshetVersionsDiffer", `max(freshet_cluster_versions) > 1`, "1h", "ticket",
		"Nodes and collectors of the cluster run {{ $value }} versions of Freshet: an upgrade has not reached all of them."},
	{"FreshetNodeUnreachable", `freshet_cluster_node_reachable == 0`, "1m", "page",
		"{{ $labels.instance }} cannot reach node {{ $labels.node }} of its cluster: if another node fails, writes stop."},
}

// runbooks is the address of docs/operations.md, which tells the person on call what to do.
const runbooks = "https://github.com/freshet-io/freshet/blob/main/docs/operations.md#"

const rulesHeader = `# Alerting rules for a Prometheus that scrapes /metrics of Freshet. For each alert,
# docs/operations.md says what to do, under the name of the alert.
# Written by go generate ./deploy/monitoring.
`

// rulesFile returns the alerts as a file of Prometheus' alerting rules.
func rulesFile(all []alert) []byte {
	type rule struct {
		Alert       string            `yaml:"alert"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for,omitempty"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	}
	type group struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	g := group{Name: "freshet"}
	for _, a := range all {
		g.Rules = append(g.Rules, rule{
			Alert: a.Name, Expr: a.Expr, For: a.For, Labels: map[string]string{"severity": a.Severity},
			Annotations: map[string]string{"summary": a.Summary, "runbook_url": runbooks + strings.ToLower(a.Name)},
		})
	}
	return inYAML(rulesHeader, map[string][]group{"groups": {g}})
}
