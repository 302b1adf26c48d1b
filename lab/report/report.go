// Package report holds the lab's results, and makes the tables and plots of docs/performance.md
// from them. It measures nothing, so the same results always give the same page.
//
// The files, from top to bottom. Each file uses only names that are declared in files below it:
//
//	page.go         the page, section by section
//	report.go       Results, read and written
//	goals.go        the collector's goals, and whether it reaches them
//	techniques.go   Go benchmarks
//	dashboards.go   writes while dashboards are refreshed
//	cluster.go      three nodes beside one machine
//	queries.go      what databases spend on queries
//	fairness.go     other tenants while one sends far too much
//	rules.go        databases that evaluate rules
//	figures.go      parts with a row for each figure, such as what a context takes
//	remotewrite.go  databases
//	scale.go        a collector's memory, and large numbers of contexts
//	plot.go         plots
//	clock.go        the CPU time of a process
//	verdict.go      what a run shows about a goal
//	results.go      the cost of each receiver
//	cells.go        numbers in tables
//	stats.go        medians and intervals
package report

import (
	"encoding/json"
	"fmt"
	"os"
)

// Results are the results of one run of the lab, in docs/performance/results.json. Parts that were
// not measured are empty.
type Results struct {
	Date     string    `json:"date"` // UTC date of the beginning, such as 2026-11-21
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Loads []Load `json:"loads"`
	Idle  []Idle `json:"idle"`
	Rates []Rate `json:"rates"`
	Scale Scale  `json:"scale"`

	Techniques  *Techniques  `json:"side_by_side,omitempty"`
	RemoteWrite *RemoteWrite `json:"remote_write,omitempty"`
	Fairness    *Fairness    `json:"fairness,omitempty"`
	Dashboards  *Dashboards  `json:"dashboards,omitempty"`
	Cluster     *Cluster     `json:"cluster,omitempty"`
	Queries     *Queries     `json:"queries,omitempty"`
	Rules       *Rules       `json:"rules,omitempty"`
	Packed      *Figures     `json:"packed,omitempty"` // packed datagrams, evenly and in bursts
	Memory      *Figures     `json:"memory,omitempty"` // what a series, a context and a tenant take
	Start       *Figures     `json:"start,omitempty"`  // starts of databases
	Disk        *Figures     `json:"disk,omitempty"`   // what samples take on disk

	LeftOut []string `json:"left_out,omitempty"` // parts that were wanted but not measured, and why
}

// Read reads results as Write wrote them.
func Read(path string) (*Results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Results)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Write replaces the file at `path`.
func (r *Results) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
