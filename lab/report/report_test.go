package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"the middle, in any order", []float64{9, 1, 5}, 5},
		{"one run far off does not move it", []float64{5, 5, 5, 5, 500}, 5},
		{"between the two in the middle", []float64{4, 1, 2, 3}, 2.5},
		{"of one", []float64{7}, 7},
		{"of none", nil, 0},
	} {
		before := slices.Clone(c.values)
		if got := Median(c.values); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if !slices.Equal(c.values, before) {
			t.Errorf("%s: Median has reordered its argument", c.name)
		}
	}
}

// MedianInterval uses the ranks in published tables of the sign test for at least 95 %: 2 and 8 of
// 9, 3 and 10 of 12, 3 and 12 of 14 (4 and 11 have 94 %), 6 and 15 of 20, 10 and 21 of 30.
func TestMedianInterval(t *testing.T) {
	for n, want := range map[int][2]float64{
		0: {math.Inf(-1), math.Inf(1)}, 5: {math.Inf(-1), math.Inf(1)},
		6: {1, 6}, 8: {1, 8}, 9: {2, 8}, 12: {3, 10}, 14: {3, 12}, 20: {6, 15}, 30: {10, 21},
	} {
		var values []float64
		for i := range n {
			values = append(values, float64((i*11)%n+1)) // in a mixed order: 11 and n have no divisor in common
		}
		before := slices.Clone(values)
		if low, high := MedianInterval(values); low != want[0] || high != want[1] {
			t.Errorf("with %d values: the interval is from rank %v to rank %v, want %v", n, low, high, want)
		}
		if !slices.Equal(values, before) {
			t.Errorf("MedianInterval has reordered its %d values", n)
		}
	}
}

// sample returns results with an entry of each kind.
func sample() *Results {
	return &Results{
		Date:     "2026-11-21",
		Machine:  Machine{CPU: "A <fast> one", Cores: 2, MemoryBytes: 8 << 30, Kernel: "Linux 6", Stolen: new(.125)},
		Versions: []Version{{"Freshet", "v1"}},
		Loads: []Load{{ID: "udp", Name: "UDP & more", Packed: 1, Bytes: 100, Rate: 40_000, Contexts: 10_000, Goal: 1.0,
			WholeGoal: 1.25, Costs: []Cost{
				{Name: "a peer", Group: Peer, Interval: 10, Micros: []float64{6.5}, Rate: []float64{40_000}, Sent: 200,
					Received: 150},
				{Name: "bare recvfrom", Group: Bare, Interval: 2, Micros: []float64{2, 1, 3}, Rate: []float64{40_000}, Sent: 100,
					Received: 100},
				{Name: "Freshet", Group: Ours, Interval: 2, Micros: []float64{1, 1, 1.5}, Rate: []float64{40_000}, Sent: 100,
					Received: 100,
					Resident: []float64{25e6}, Allocations: []float64{0.002}},
				{Name: "all of it", Group: Ours, Interval: 10, Micros: []float64{1.2}, Rate: []float64{40_000}, Sent: 100,
					Received: 100},
			}}},
		Idle:  []Idle{{Name: "Freshet", Group: Ours, Percent: []float64{0.03}}},
		Rates: []Rate{{Name: "Freshet", Group: Ours, PerSecond: []float64{3.2e6}, Sender: true}},
		Scale: Scale{
			Million: &Million{
				Contexts: 1_000_000, ResidentBefore: 20e6, ResidentAfter: 320e6, HeapBefore: 5e6, HeapAfter: 255e6,
			},
			Flush: &Storm{Seconds: 10, Asked: 1.5e6, Rate: 1.5e6, Sent: 15e6, Received: 15e6},
			Storm: &Storm{
				Seconds: 60, Asked: 1.5e6, Rate: 1.5e6, NewContexts: 1e5, Sent: 90e6, Received: 90e6, Folded: 5e6, Refused: 7,
			},
		},
		Techniques: &Techniques{Date: "2026-11-20", Machine: Machine{CPU: "A fifth", Cores: 2, LoadAverage: .1},
			Versions: []Version{{"Freshet", "v5"}}, OthersAtMost: .05, RepeatsAtMost: 2,
			Parsing: Benchmarks{Others: []float64{.01, .02, .03}, Repeated: 1, All: []Technique{
				{Group: "Key", Name: "string", Nanoseconds: []float64{120, 110, 130}, Bytes: 96, Allocations: 2},
				{Group: "Key", Name: "ours", Nanoseconds: []float64{60, 50, 50}}}},
			Decoders: Benchmarks{Others: []float64{.01, .01, .01, .01, .01, .01}, All: []Technique{
				{Group: "Report", Name: "generated", Nanoseconds: []float64{2000, 2000, 2000, 2000, 2000, 4000}, Bytes: 1500,
					Allocations: 19, GCPercent: []float64{15}},
				{Group: "Report", Name: "ours", Nanoseconds: []float64{500, 400, 250, 500, 500, 1000}},
				{Group: "Alone", Name: "reflection", Nanoseconds: []float64{1}}}},
			Pools: Benchmarks{Others: []float64{.2},
				All: []Technique{{Group: "Deep", Name: "ours", Nanoseconds: []float64{1020, 1000, 1100},
					Growths: []float64{0.0021, 0.002, 0.0022}, GrowthPercent: []float64{0, 0, 0.9}}}},
			Clients: Benchmarks{
				Others: []float64{0},
				All: []Technique{
					{Group: "Counter", Name: "datadog-go", Nanoseconds: []float64{46}},
					{Group: "Counter", Name: "ours", Nanoseconds: []float64{48}},
				},
			}},
		RemoteWrite: &RemoteWrite{Date: "2026-11-22", Machine: Machine{CPU: "Another", Cores: 4, LoadAverage: .25},
			Versions: []Version{{"Freshet", "v2"}, {"Prometheus", "v0.1"}},
			Loads: []WriteLoad{{ID: "v1", Name: "Version 1", Series: 1000, Batch: 100, Rounds: 30,
				Goals: WriteGoals{Seconds: .85, Ratio: .3, New: 5, Resident: 1900}, Costs: []WriteCost{
					{Name: "Prometheus", Group: Peer, Acknowledged: 60_000, Found: 60_000, Seconds: []float64{3, 3.2},
						Ratio: []float64{1, 1}, New: []float64{5, 6},
						P50: []float64{4, 4}, P99: []float64{20, 22}, Resident: []float64{1900, 1800},
						PerSecond: []float64{400e3, 410e3}},
					{Name: "A database", Group: Peer, Not: "does not understand it"},
					{Name: "Freshet", Group: Ours, Acknowledged: 60_000, Found: 60_000, Seconds: []float64{.8, .82},
						Ratio: []float64{.25, .27}, New: []float64{4, 5},
						P50: []float64{2, 2.2}, P99: []float64{6, 7}, Resident: []float64{1200, 1300},
						PerSecond: []float64{1.1e6, 1.3e6}},
				}}},
			Acknowledged: []Acknowledged{{
				Load: "Version 1", Pace: "flat out", Requests: 4000, Whole: []float64{3, 3.3}, Push: []float64{2.5, 2.2},
			}}},
		Fairness: &Fairness{Date: "2026-11-23", Machine: Machine{CPU: "A third", Cores: 8, LoadAverage: .5},
			Versions: []Version{{"Freshet", "v3"}},
			Tenants:  4, Batch: 200, OneBatch: 2000, Limit: 10_000, Times: 20, Capacity: []float64{800e3, 900e3},
			Alone: []float64{2, 2, 2, 2, 2, 2}, Beside: []float64{2.08, 2.06, 2.1, 2.04, 2.14, 2.06},
			Rate:     []float64{199e3, 201e3},
			Requests: 24_000, Acknowledged: 7_000_000, Stored: 7_000_000, Sent: 10_000, Refused: 9500},
		Rules: &Rules{Date: "2026-11-28", Machine: Machine{CPU: "A sixth", Cores: 2}, Versions: []Version{{"Freshet", "v6"}},
			Rules: 10_000, Groups: 500, Every: 60, Series: 50_000, Rate: 3333, Databases: []RulesCost{
				{Name: "Prometheus", Group: Peer, Evaluations: 20_000, Found: 10_000, Seconds: []float64{4, 5},
					Resident: []float64{200e6, 210e6}},
				{Name: "Freshet", Group: Ours, Evaluations: 20_000, Found: 10_000, Seconds: []float64{4.2, 5},
					Ratio: []float64{1.05, 1}, Resident: []float64{150e6, 160e6}},
			}},
		Cluster: &Cluster{Date: "2026-11-25", Machine: Machine{CPU: "A fifth", Cores: 2},
			Versions: []Version{{"Freshet", "v5"}},
			Loads: []ClusterLoad{
				{
					Name: "writes",
					Alone: ClusterCost{Seconds: []float64{1, 1.2}, PerSecond: []float64{2e6, 2e6}, P50: []float64{1, 2},
						P99: []float64{4, 5}, Acknowledged: 1000, Found: 1000},
					Three: ClusterCost{Seconds: []float64{4, 4.8}, Leader: []float64{1.5, 1.6}, Followers: []float64{2.5, 3.2},
						Log: []float64{2, 2.2}, PerSecond: []float64{1e6, 1e6}, P50: []float64{9, 9}, P99: []float64{50, 60},
						Acknowledged: 1000, Found: 1000},
				},
				{
					Name:  "windows",
					Alone: ClusterCost{Seconds: []float64{9}, PerSecond: []float64{1e4}, Fresh: []float64{1100}},
					Three: ClusterCost{Seconds: []float64{20}, Leader: []float64{11}, Followers: []float64{9}, Log: []float64{12},
						PerSecond: []float64{1e4}, Fresh: []float64{1300}},
				},
			}},
		Memory: &Figures{Date: "2026-11-28", Machine: Machine{CPU: "A seventh", Cores: 2},
			Versions: []Version{{"Freshet", "v7"}},
			Figures: []Figure{
				{What: "a context", Unit: "bytes", Must: 6000, Aim: 4000, Runs: []float64{5500, 5900, 5300}},
				{What: "a context", Unit: "CPU us a tile", Must: 3, Aim: 1.5, Runs: []float64{2.5}},
			}},
		Start: &Figures{Date: "2026-11-29", Machine: Machine{CPU: "An eighth", Cores: 2},
			Versions: []Version{{"Freshet", "v7"}}, Figures: []Figure{
				{What: "a start", Unit: "CPU s", Must: 15, Worst: 18, Aim: 12, Runs: []float64{17, 11, 12}},
				{What: "a start", Unit: "Prometheus: CPU s", Runs: []float64{60}},
			}},
		Queries: &Queries{Date: "2026-11-28", Machine: Machine{CPU: "A sixth", Cores: 2},
			Versions: []Version{{"Freshet", "v6"}}, Repeats: 5, Queries: []Query{
				{Text: "sum(x)", Hours: 6, Goals: QueryGoals{Most: 190, Aim: 108}, Costs: []QueryCost{
					{Name: "Prometheus", Group: Peer, Millis: []float64{468, 470}},
					{Name: "Freshet", Group: Ours, Millis: []float64{110, 105}}}},
				{Text: "sum(native)", Hours: 168, Costs: []QueryCost{{Name: "Freshet", Group: Ours, Millis: []float64{12}}}},
				{Text: "count(x)", Costs: []QueryCost{{Name: "Prometheus", Group: Peer, Millis: []float64{16}}}},
			}},
		Dashboards: &Dashboards{Date: "2026-11-24", Machine: Machine{CPU: "A fourth", Cores: 2},
			Versions:   []Version{{"Freshet", "v4"}},
			Dashboards: 10, Panels: 6, Every: 5, Series: 8000, History: 6, Interval: 15, Rate: 8000, Batch: 80,
			OthersAtMost: .05, RepeatsAtMost: 2,
			Databases: []DashboardCost{
				{Name: "Prometheus", Group: Peer, Acknowledged: 12e6, Found: 12e6, Repeated: 1, Queries: 480, Refused: 3,
					Why: "503: too many",
					Alone: WritesBeside{
						P50: []float64{.9, 1}, P99: []float64{3.5, 3.7}, Longest: []float64{19, 21}, CPU: []float64{10, 12},
						Fresh: []float64{1.4, 1.4}, FreshLongest: []float64{4, 5},
					},
					Beside: WritesBeside{
						P50: []float64{16, 18}, P99: []float64{620, 640}, Longest: []float64{800, 900}, CPU: []float64{70, 72},
						Fresh: []float64{2, 2}, FreshLongest: []float64{575, 580},
					},
					QueryP50: []float64{260, 270}, QueryP99: []float64{1200, 1300}, Others: []float64{.01, .02}},
				{Name: "Freshet", Group: Ours, Acknowledged: 12e6, Found: 12e6, Queries: 480, Delayed: 2,
					Alone: WritesBeside{P50: []float64{.5, .7}, P99: []float64{3, 4}, Longest: []float64{9, 11}, CPU: []float64{7, 7},
						Fresh: []float64{1, 2}, FreshLongest: []float64{5, 6},
						Own: map[string][]float64{"dogstatsd": {1010, 1020}}},
					Beside: WritesBeside{P50: []float64{.8, 1}, P99: []float64{5, 7}, Longest: []float64{14, 16},
						CPU: []float64{60, 62}, Fresh: []float64{2, 4}, FreshLongest: []float64{20, 30},
						Own: map[string][]float64{"dogstatsd": {1040, 1060}, "remote_write": {20, 30}}},
					QueryP50: []float64{100, 120}, QueryP99: []float64{500, 700}, Others: []float64{.01, .05}},
				{Name: "A database that failed", Group: Peer, Acknowledged: 5, Found: 5},
			}},
	}
}

func TestTables(t *testing.T) {
	text := sample().String()
	for what, want := range map[string]string{
		"the ratio of each turn, and the goal": "| UDP & more | Freshet: 1.00 (1.00-1.50), to bare recvfrom: " +
			"2.00 (1.00-3.00) | 0.50 (0.50-1.00) | at most 1.00 |",
		"the whole server to the collector": "|  | all of it: 1.20, to Freshet: " +
			"1.00 (1.00-1.50) | 1.20 | at most 1.25 |",
		"what a receiver lost":                   "| a peer | 6.50, lost 25 % | 0.0 | 40,000 |",
		"a rate that was the sender's limit":     "| Freshet | over 3.20 |",
		"bytes a context, all included":          "300 bytes a context",
		"the same for the heap":                  "250 bytes a context",
		"what became of samples without a place": "5,000,000 counted in the series of those without a place, 7 refused",
		"a decoder, and its garbage": "| Report | generated | 2000 (2000-4000) | 4.00 (4.00-8.00) " +
			"| 1500 | 19 | 15 |",
		"a technique with its spread":               "| Key | string | 120 (110-130) | 2.20 of too few rounds | 96 | 2.0 |",
		"what the others are compared with":         "|  | ours | 50 (50-60) |  | 0 | 0 |",
		"a technique that is compared with nothing": "| Alone | reflection | 1.0 |  | 0 | 0 |  |",
		"a client that is cheaper than ours":        "| Counter | datadog-go | 46 | 0.96 of too few rounds | 0 | 0 |",
		"the load of a round": "Others took 2.0 (1.0-3.0) % of the processors. " +
			"1 of 3 rounds were repeated.\n",
		"rounds that others disturbed": "Others took 20 % of the processors. 0 of 1 rounds were repeated. " +
			"**1 count although others took more.**",
		"which rounds count": "A round is repeated if others take more than 5 % of the processors, " +
			"2 times at most.\n",
		"techniques, of their own day": "Measured 2026-11-20 on A fifth, 2 cores, " +
			"0.1 processes running before. Freshet: v5.",
		"a pool with what its stacks did": "| Deep | ours | 1020 (1000-1100) |  | 0 | 0.0021 " +
			"(0.0020-0.0022) | 0 (0-0.90) |",
		"a database beside the first": "| Freshet | 0.81 (0.80-0.82) | 0.26 (0.25-0.27) | 4.5 (4.0-5.0) | " +
			"2.1 (2.0-2.2) / 6.5 (6.0-7.0) | 1,250 (1,200-1,300) | 1,200,000 | 0 |",
		"a database that cannot": "| A database | does not understand it |",
		"a part of its own day and machine": "Measured 2026-11-22 on Another, 4 cores, " +
			"0.2 processes running before. Freshet: v2; Prometheus: v0.1.",
		"what a database is compared with": "|  | ratio to Prometheus | 0.26 (0.25-0.27) | at most 0.30 |",
		"what an acknowledgement takes": "| Version 1, flat out | 4,000 | 3.1 (3.0-3.3) | 2.4 (2.2-2.5) | " +
			"1.35 (1.20-1.50) |",
		"the goal of an acknowledgement": "queue, append and commit, flat out | 1.35 (1.20-1.50) | at most " +
			"1.50, better 1.20 |",
		"fairness, of its own day": "Measured 2026-11-23 on A third, 8 cores, " +
			"0.5 processes running before. Freshet: v3.",
		"a median with its confidence interval": "| One tenant at 20 times its limit | p99 of the other tenants' " +
			"acknowledgements, divided by the p99 without this load | 1.04 (95 %: 1.02-1.07) | at most 1.10 |",
		"what the one tenant sent":       "| 200,000 samples a second, 2,000 a request, 20 times its limit |",
		"how much of it was refused":     "| its requests | 10,000, of which 95.0 % were refused |",
		"the highest rate of the others": "| 850,000 samples a second of 4 tenants, 200 a request |",
		"writes beside dashboards": "| Freshet | 0.60 (0.50-0.70) / 3.5 (3.0-4.0) / 10 (9.0-11) | 0.90 " +
			"(0.80-1.0) / 6.0 (5.0-7.0) / 15 (14-16) | 7 (7-7) / 61 (60-62) | 0 |",
		"until a query has a sample": "| Freshet | 1.5 (1.0-2.0) / 5.5 (5.0-6.0) | 3.0 " +
			"(2.0-4.0) / 25 (20-30) |",
		"Freshet's own figure": "| Freshet, `freshet_freshness_seconds`, dogstatsd, " +
			"p99 | 1015 (1010-1020) | 1050 (1040-1060) |",
		"a path without probes alone": "| Freshet, `freshet_freshness_seconds`, remote_write, " +
			"p99 |  | 25 (20-30) |",
		"queries of dashboards": "| Prometheus | 265 (260-270) | 1250 (1200-1300) | 480 " +
			"| 3 | 0 | 0 | 0 |",
		"memory, with its bounds": "| a context | bytes | 5,500 (5,300-5,900) | 6,000 | " +
			"4,000, **missed** |",
		"a small bound in its digits": "|  | CPU us a tile | 2.50 | 3 | 1.5, **missed** |",
		"a bound of the median, and one of the worst": "| a start | CPU s | 12.00 (11.00-17.00) | 15, " +
			"the worst 18 | 12, **not shown** |",
		"a figure without bounds": "|  | Prometheus: CPU s | 60.00 |  |  |",
		"both bounds among the other goals": "| a start | CPU s | 12.00 (11.00-17.00) | at most 15, the worst 18, " +
			"better 12 |",
		"memory among the other goals": "| a context | bytes | 5,500 (5,300-5,900) | at most 6,000, better 4,000 |",
		"three nodes": "|  | three nodes | 4.4 (4.0-4.8) | 1.6 (1.5-1.6) | 2.9 (2.5-3.2) | 2.1 (2.0-2.2) | " +
			"9.0 (9.0-9.0) / 55 (50-60) |  | 1,000,000 | 0 |",
		"one machine beside them": "| windows | one machine | 9.0 |  |  |  |  | 1100 | 10,000 | 0 |",
		"why a query was refused": "The first query that Prometheus did not answer as it " +
			"should: 503: too many",
		"the load beside dashboards": "8,000 samples a second, 80 a request, " +
			"of 8,000 series with 6 hours of history, a sample each 15 s; 10 dashboards of 6 panels, each refreshed every 5 s.",
		"which runs count": "A run is repeated if others take more than 5 % of the processors, " +
			"2 times at most. 1 of 4 runs were repeated.\n",
		"a query, its ratio to a peer, and its goals": "| `sum(x)` | 6 h | 469 (468-470) | 108 (105-110) | " +
			"0.23 (0.22-0.24) | 190 | 108, **not shown** |",
		"a query that a peer does not know": "| `sum(native)` | 7 days |  | 12 |  |  |  |",
		"the machine":                       "| processor | A <fast> one, 2 cores |",
		"what the machine did not give": "| processors were taken away | by the hypervisor, " +
			"for 12.5 % of the time |",
		"idle, with two digits that mean something": "| Freshet | 0.030 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: missing %q in\n%s", what, want, text)
		}
	}
}

func ours(r *Results) *WriteCost { return &r.RemoteWrite.Loads[0].Costs[2] }

func besideOf(r *Results) *DashboardCost { return &r.Dashboards.Databases[1] }

// The page states the number of disturbed runs whose results still count.
func TestDisturbedRunsAreNamed(t *testing.T) {
	r := sample()
	besideOf(r).Others = []float64{.06, .5}
	if text := r.dashboards(); !strings.Contains(text,
		" 1 of 4 runs were repeated. **2 count although others took more.**") {
		t.Error(text)
	}
	r.Dashboards.Databases = r.Dashboards.Databases[2:]
	if text := r.dashboards() + r.goals(); !strings.HasPrefix(text, notMeasured) || strings.Contains(text, "dashboards") {
		t.Errorf("without a finished run, got:\n%s", text)
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, .25: 1, .26: 2, .5: 2, .99: 4, 1: 4} {
		if got := Quantile(values, q); got != want {
			t.Errorf("%v: got %v, want %v", q, got, want)
		}
	}
	if got := Quantile(nil, .99); got != 0 || values[0] != 4 {
		t.Errorf("Quantile of an empty list returned %v, want 0; the list of the other calls is now %v, want its "+
			"original order",
			got, values)
	}
}

// The page marks each missed goal as missed, and no other goal.
func TestMissedGoals(t *testing.T) {
	if text := sample().goals(); strings.Contains(text, "missed") {
		t.Errorf("got missed goals, want none:\n%s", text)
	}
	for what, c := range map[string]struct {
		miss func(*Results)
		row  string
	}{
		"ratio": {func(r *Results) { r.Loads[0].Goal = 0.49 },
			"| 0.50 (0.50-1.00) | at most 0.49, **missed** |"},
		"ratio of the whole": {func(r *Results) { r.Loads[0].WholeGoal = 1.19 }, "| 1.20 | at most 1.19, **missed** |"},
		"idle":               {func(r *Results) { r.Idle[0].Percent = []float64{1} }, "| 1.0 | under 1, **missed** |"},
		"highest rate": {func(r *Results) { r.Rates[0].PerSecond = []float64{3e6} },
			"| over 3.00 | over 3, **missed** |"},
		"resident memory": {func(r *Results) { r.Loads[0].Costs[2].Resident = []float64{40e6} },
			"| 40.0 | under 40, **missed** |"},
		"allocations": {func(r *Results) { r.Loads[0].Costs[2].Allocations = []float64{0.0051} },
			"| 0.01 | 0.00, **missed** |"},
		"resident bytes": {func(r *Results) { r.Scale.Million.ResidentAfter = 421e6 },
			"| 401 | at most 400, **missed** |"},
		"heap bytes": {func(r *Results) { r.Scale.Million.HeapAfter = 406e6 },
			"| 401 | at most 400, **missed** |"},
		"packets while flushing": {func(r *Results) { r.Scale.Flush.KernelDropped = 1 }, "| 1 | 0, **missed** |"},
		"a storm of too few contexts": {func(r *Results) { r.Scale.Storm.NewContexts = 80e3 },
			"| 80,000 | 100,000, **missed** |"},
		"half of the rate":     {func(r *Results) { r.Scale.Flush.Rate = 1.2e6 }, "| 1,200,000 | 1,500,000, **missed** |"},
		"metrics not received": {func(r *Results) { r.Scale.Storm.Received -= 5 }, "| 5 | 0, **missed** |"},
		"packets in the storm": {func(r *Results) { r.Scale.Storm.KernelDropped = 2 }, "| 2 | 0, **missed** |"},
		"CPU of remote write": {func(r *Results) { ours(r).Seconds = []float64{.86} },
			"| 0.86 | at most 0.85, **missed** |"},
		"its ratio": {func(r *Results) { ours(r).Ratio = []float64{.31} },
			"| 0.31 | at most 0.30, **missed** |"},
		"a new series": {func(r *Results) { ours(r).New = []float64{5.1} }, "| 5.1 | at most 5.0, **missed** |"},
		"memory a series": {func(r *Results) { ours(r).Resident = []float64{1901} },
			"| 1,901 | at most 1,900, **missed** |"},
		"a slow answer": {func(r *Results) { ours(r).P99 = []float64{22} },
			"| 22 | below Prometheus's 21 (20-22), **missed** |"},
		"a sample that is lost": {func(r *Results) { ours(r).Found-- }, "| 1 | 0, **missed** |"},
		"a sample from nowhere": {func(r *Results) { ours(r).Found++ }, "| -1 | 0, **missed** |"},
		"a slow way in": {func(r *Results) { r.RemoteWrite.Acknowledged[0].Whole = []float64{3.76} },
			"| 1.50 | at most 1.50, better 1.20, **missed** |"},
		"other tenants that wait": {func(r *Results) { r.Fairness.Alone = []float64{1.6, 1.6, 1.6, 1.6, 1.6, 1.6} },
			"| 1.29 (95 %: 1.27-1.34) | at most 1.10, **missed** |"},
		"a tenant that sends less than it should": {func(r *Results) { r.Fairness.Rate = []float64{190e3} },
			"| 190,000 | 200,000, **missed** |"},
		"rules that cost too much": {func(r *Results) { r.Rules.Databases[1].Ratio = []float64{1.11} },
			"| 1.11 | at most 1.10, **missed** |"},
		"a rule that fails": {func(r *Results) { r.Rules.Databases[1].Failed = 201 },
			"| 19,799 | at least 19,800, **missed** |"},
		"a rule that is late": {func(r *Results) { r.Rules.Databases[1].Evaluations = 19_799 },
			"| 19,799 | at least 19,800, **missed** |"},
		"a result that is lost":  {func(r *Results) { r.Rules.Databases[1].Found-- }, "| 9,999 | 10,000, **missed** |"},
		"a sample of the others": {func(r *Results) { r.Fairness.Stored-- }, "| 1 | 0, **missed** |"},
		"a query that costs too much": {func(r *Results) { r.Queries.Queries[0].Costs[1].Millis = []float64{191} },
			"| 191 | at most 190, better 108, **missed** |"},
		"writes that wait": {func(r *Results) { besideOf(r).Beside.P99 = []float64{15} },
			"| 15 | under 15, **missed** |"},
		"a panel that is empty":           {func(r *Results) { besideOf(r).Empty = 1 }, "| 1 | 0, **missed** |"},
		"a panel that is refused":         {func(r *Results) { besideOf(r).Refused = 2 }, "| 2 | 0, **missed** |"},
		"a panel that fails":              {func(r *Results) { besideOf(r).Failed = 3 }, "| 3 | 0, **missed** |"},
		"a sample lost beside dashboards": {func(r *Results) { besideOf(r).Found-- }, "| 1 | 0, **missed** |"},
		"a stale datagram": {func(r *Results) { besideOf(r).Beside.Own["dogstatsd"] = []float64{1300} },
			"| 1300 | under 1,300, **missed** |"},
		"a stale remote write": {func(r *Results) { besideOf(r).Beside.Own["remote_write"] = []float64{100} },
			"| 100 | under 100, **missed** |"},
		"a busy machine": {func(r *Results) { besideOf(r).Others[0] = .06 },
			"runs in which others took more than 5 % of the processors | 1 | 0, **missed** |"},
		"dear nodes": {func(r *Results) { r.Cluster.Loads[1].Three.Seconds = []float64{46.8} },
			"| 5.20 | at most 5.00, better 4.00, **missed** |"},
		"contexts that take much memory": {func(r *Results) { r.Memory.Figures[0].Runs = []float64{6001} },
			"| 6,001 | at most 6,000, better 4,000, **missed** |"},
		"a start that is slow once": {func(r *Results) { r.Start.Figures[0].Runs[0] = 18.1 },
			"| at most 15, the worst 18, better 12, **missed** |"},
		"starts that are slow": {func(r *Results) { r.Start.Figures[0].Runs = []float64{15.1, 15.1, 12} },
			"| at most 15, the worst 18, better 12, **missed** |"},
		"stale windows": {func(r *Results) { r.Cluster.Loads[1].Three.Fresh = []float64{1600} },
			"| 1600 | at most 1500, **missed** |"},
		"a sample that a node lacks": {func(r *Results) { r.Cluster.Loads[0].Three.Found-- }, "| 1 | 0, **missed** |"},
		"the ledger in the storm":    {func(r *Results) { r.Scale.Storm.Difference = -3 }, "| -3 | 0, **missed** |"},
	} {
		r := sample()
		c.miss(r)
		if text := r.goals(); strings.Count(text, "missed") != 1 || !strings.Contains(text, c.row) {
			t.Errorf("%s: want only the goal %q to be missed in\n%s", what, c.row, text)
		}
	}
}

// If noise hides whether a goal is reached, the page marks the goal as neither reached nor missed.
func TestNotShown(t *testing.T) {
	for _, c := range []struct {
		name   string
		ratios []float64 // six values, so that the interval reaches from the smallest to the largest
		bound  float64
		want   Verdict
	}{
		{"below the bound, and narrower than what it allows", []float64{1.02, 1.03, 1.04, 1.05, 1.06, 1.07}, 1.10, Reached},
		{"up to the bound", []float64{1.02, 1.03, 1.04, 1.05, 1.06, 1.10}, 1.10, Reached},
		{"the bound is in it", []float64{1.02, 1.03, 1.04, 1.05, 1.06, 1.11}, 1.10, NotShown},
		{"anything could be in it", []float64{.22, .6, .9, 1.1, 3, 6.74}, 1.10, NotShown},
		{"below the bound, and as wide as what it allows", []float64{.75, .80, .85, .90, .95, 1}, 1.25, NotShown},
		{"above the bound", []float64{1.11, 1.12, 1.13, 1.14, 1.15, 1.16}, 1.10, Missed},
		{"above the bound, if anywhere", []float64{1.11, 2, 3, 4, 5, 6}, 1.10, Missed},
		{"too few pairs", []float64{1, 1, 1, 1, 1}, 1.10, NotShown},
		{"no pairs", nil, 1.10, NotShown},
		{"of nothing to nothing", []float64{math.NaN(), 1, 1, 1, 1, 1}, 1.10, NotShown},
	} {
		if got := RatioAtMost(c.ratios, c.bound); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	r := sample()
	r.Fairness.Beside = []float64{.44, 1.2, 1.8, 2.2, 6, 13.48}
	if text, row := r.goals(), "| 1.00 (95 %: 0.22-6.74) | at most 1.10, **not shown** |"; !strings.Contains(text, row) ||
		strings.Contains(text, "missed") {
		t.Errorf("missing %q in\n%s", row, text)
	}
}

// A goal counts as reached if all runs reach it, and as missed if no run does. Otherwise the goal's
// bound lies within the range of the results, and the runs show neither.
func TestABoundWithinTheRangeIsNotShown(t *testing.T) {
	r := sample()
	if text := r.goals(); strings.Contains(text, string(NotShown)) {
		t.Errorf("want every goal to be shown as reached or missed in\n%s", text)
	}
	for what, c := range map[string]struct {
		spoil func(*Results)
		row   string
	}{
		"ratio": {func(r *Results) { r.Loads[0].Costs[2].Micros[1] = 1.01 },
			"| 0.50 (0.50-1.01) | at most 1.00, **not shown** |"},
		"a median over it": {func(r *Results) { r.Loads[0].Costs[2].Micros = []float64{2.2, 1.1, 1.5} },
			"| 1.10 (0.50-1.10) | at most 1.00, **not shown** |"},
		"ratio of the whole": {func(r *Results) { r.Loads[0].Costs[3].Micros = []float64{1.2, 1.26, 1.8} },
			"| 1.20 (1.20-1.26) | at most 1.25, **not shown** |"},
		"idle": {func(r *Results) { r.Idle[0].Percent = []float64{.5, .6, 1} },
			"| 0.60 (0.50-1.0) | under 1, **not shown** |"},
		"highest rate": {func(r *Results) { r.Rates[0].PerSecond = []float64{3e6, 3.2e6, 3.3e6} },
			"| over 3.20 (3.00-3.30) | over 3, **not shown** |"},
		"resident memory": {func(r *Results) { r.Loads[0].Costs[2].Resident = []float64{36.8e6, 35.8e6, 41e6} },
			"| 36.8 (35.8-41.0) | under 40, **not shown** |"},
		"allocations": {func(r *Results) { r.Loads[0].Costs[2].Allocations = []float64{0, 0, .01} },
			"| 0.00 (0.00-0.01) | 0.00, **not shown** |"},
		"CPU of a write": {func(r *Results) { ours(r).Seconds = []float64{.8, .86} },
			"| 0.83 (0.80-0.86) | at most 0.85, **not shown** |"},
		"its ratio": {func(r *Results) { ours(r).Ratio = []float64{.25, .31} },
			"| 0.28 (0.25-0.31) | at most 0.30, **not shown** |"},
		"a new series": {func(r *Results) { ours(r).New = []float64{4, 7} },
			"| 5.5 (4.0-7.0) | at most 5.0, **not shown** |"},
		"memory a series": {func(r *Results) { ours(r).Resident = []float64{1200, 2000} },
			"| 1,600 (1,200-2,000) | at most 1,900, **not shown** |"},
		"a slow answer": {func(r *Results) { ours(r).P99 = []float64{6, 20} },
			"| 13 (6.0-20) | below Prometheus's 21 (20-22), **not shown** |"},
		"a slow way in": {func(r *Results) { r.RemoteWrite.Acknowledged[0].Whole = []float64{3, 3.52} },
			"| 1.40 (1.20-1.60) | at most 1.50, better 1.20, **not shown** |"},
		"a tenant that sends less in one run": {func(r *Results) { r.Fairness.Rate = []float64{190e3, 200e3} },
			"| 195,000 (190,000-200,000) | 200,000, **not shown** |"},
		"writes that wait": {func(r *Results) { besideOf(r).Beside.P99 = []float64{5, 15} },
			"| 10 (5.0-15) | under 15, **not shown** |"},
		"a stale datagram": {func(r *Results) { besideOf(r).Beside.Own["dogstatsd"] = []float64{1000, 1400} },
			"| 1200 (1000-1400) | under 1,300, **not shown** |"},
	} {
		r := sample()
		c.spoil(r)
		if text := r.goals(); strings.Count(text, string(NotShown)) != 1 || strings.Contains(text, string(Missed)) ||
			!strings.Contains(text, c.row) {
			t.Errorf("%s: want only the goal %q to be NotShown in\n%s", what, c.row, text)
		}
	}
	if v := verdictOfRuns(nil, atMost(1)); v != NotShown {
		t.Errorf("without any run, the verdict is %s, want %s", v, NotShown)
	}
}

func TestLost(t *testing.T) {
	for received, want := range map[uint64]string{
		1_000_000: "",
		999_999:   ", lost under 0.01 %",
		999_000:   ", lost 0.10 %",
		750_000:   ", lost 25 %",
	} {
		if got := (Cost{Sent: 1_000_000, Received: received}).lost(); got != want {
			t.Errorf("%d of a million received: lost is %q, want %q", received, got, want)
		}
	}
}

func TestPageHasAPlaceForEachSection(t *testing.T) {
	var whole strings.Builder
	for _, s := range sections {
		whole.WriteString("<!-- lab: " + s.name + " -->\nold\n<!-- end -->\n\nBy hand.\n")
	}
	page, err := sample().Page(whole.String())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page, "old") || strings.Count(page, "By hand.") != len(sections) {
		t.Errorf("an old table remains, or text written by hand is missing:\n%s", page)
	}
	if again, err := sample().Page(page); err != nil || again != page {
		t.Errorf("making the page a second time changed it (error: %v)", err)
	}
	for what, broken := range map[string]string{
		"a place is missing":         strings.Replace(whole.String(), "lab: idle", "lab: costs", 1),
		"a place of an unknown name": whole.String() + "<!-- lab: weather -->\n<!-- end -->\n",
	} {
		if _, err := sample().Page(broken); err == nil {
			t.Errorf("%s: want an error, got none", what)
		}
	}
}

// Plots are valid XML, whatever the names contain, and have a bar for each receiver.
func TestPlots(t *testing.T) {
	plots := sample().Plots()
	if len(plots) != 1 || plots["udp.svg"] == "" {
		t.Fatalf("got %d plots, want one; the plot of udp is %q", len(plots), plots["udp.svg"])
	}
	bars := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(plots["udp.svg"])); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			for _, a := range start.Attr {
				if a.Name.Local == "class" {
					bars[a.Value]++
				}
			}
		}
	}
	// Each group has one rectangle in the legend, and one for each of its bars.
	if want := map[string]int{"page": 1, "bare": 2, "ours": 3, "peer": 2}; !reflect.DeepEqual(bars, want) {
		t.Errorf("the plot has the rectangles %v, want %v", bars, want)
	}
}

// The axis has three to eight lines for any values.
func TestGridStep(t *testing.T) {
	for largest, want := range map[float64]float64{0.02: 0.005, 0.3: 0.05, 1: 0.2, 7.9: 1, 8.1: 2, 40: 5} {
		if got := gridStep(largest); got < want*0.999 || got > want*1.001 {
			t.Errorf("gridStep(%v) = %v, want %v", largest, got, want)
		}
	}
}

func TestResultsSurviveTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	if err := sample().Write(path); err != nil {
		t.Fatal(err)
	}
	read, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, sample()) {
		t.Errorf("wrote %+v, read %+v", sample(), read)
	}
}

// Runs are added one by one, so that the results of finished runs are always available.
func TestRunsAreAdded(t *testing.T) {
	r := new(Results)
	load := Load{ID: "udp", Name: "UDP"}
	for _, name := range []string{"bare", "ours", "bare"} {
		c := r.Cost(load, name, Bare, time.Second)
		c.Micros = append(c.Micros, 1)
		rate := r.Rate(name, Bare)
		rate.PerSecond = append(rate.PerSecond, 1e6)
	}
	r.Cost(Load{ID: "unix"}, "bare", Bare, time.Second)
	want := []Load{{ID: "udp", Name: "UDP", Costs: []Cost{
		{Name: "bare", Group: Bare, Interval: 1, Micros: []float64{1, 1}},
		{Name: "ours", Group: Bare, Interval: 1, Micros: []float64{1}},
	}}, {ID: "unix", Costs: []Cost{{Name: "bare", Group: Bare, Interval: 1}}}}
	if !reflect.DeepEqual(r.Loads, want) {
		t.Errorf("got %+v\nwant %+v", r.Loads, want)
	}
	if len(r.Rates) != 2 || len(r.Rates[0].PerSecond) != 2 {
		t.Errorf("unexpected rates: %+v", r.Rates)
	}
}

// If only Freshet was measured, the page lacks only the comparison.
func TestRemoteWriteAlone(t *testing.T) {
	r := sample()
	costs := &r.RemoteWrite.Loads[0].Costs
	*costs = (*costs)[2:]
	ours := &(*costs)[0]
	ours.Ratio, ours.Resident = nil, nil
	r.RemoteWrite.Acknowledged, r.Fairness, r.Dashboards = nil, nil, nil
	text := r.goals() + r.remoteWrite()
	if !strings.Contains(text, "| 0.81 (0.80-0.82) | at most 0.85 |") || !strings.Contains(text, "|  | 1,200,000 | 0 |") ||
		strings.Contains(text, "ratio to") || strings.Contains(text, "ms, p99 |") || strings.Contains(text, "flat out") ||
		strings.Contains(text, "NaN") {
		t.Error(text)
	}
}

func TestRunsOfRemoteWriteAreAdded(t *testing.T) {
	var w RemoteWrite
	for _, name := range []string{"a", "b", "a"} {
		c := w.Cost(WriteLoad{ID: "v1"}, name, Peer)
		c.Seconds = append(c.Seconds, 1)
	}
	w.Cost(WriteLoad{ID: "v2"}, "a", Ours)
	want := []WriteLoad{{
		ID: "v1",
		Costs: []WriteCost{
			{Name: "a", Group: Peer, Seconds: []float64{1, 1}}, {Name: "b", Group: Peer, Seconds: []float64{1}},
		},
	},
		{ID: "v2", Costs: []WriteCost{{Name: "a", Group: Ours}}}}
	if !reflect.DeepEqual(w.Loads, want) {
		t.Errorf("got %+v\nwant %+v", w.Loads, want)
	}
}

// A second run of a figure joins the first one, and figures of one thing stay together.
func TestFiguresOfSeveralRuns(t *testing.T) {
	var m Figures
	for _, v := range []float64{5, 7} {
		m.Add(Figure{What: "a context", Unit: "bytes", Runs: []float64{v}})
		m.Add(Figure{What: "a tenant", Unit: "bytes", Runs: []float64{v * 10}})
		m.Add(Figure{What: "a context", Unit: "us", Runs: []float64{v / 10}})
	}
	want := []Figure{
		{What: "a context", Unit: "bytes", Runs: []float64{5, 7}}, {What: "a context", Unit: "us", Runs: []float64{.5, .7}},
		{What: "a tenant", Unit: "bytes", Runs: []float64{50, 70}},
	}
	if !reflect.DeepEqual(m.Figures, want) {
		t.Errorf("got %v, want %v", m.Figures, want)
	}
}
