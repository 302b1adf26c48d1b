// Package report holds what the lab measured, and makes docs/performance.md's
// tables and plots of it. It measures nothing: the same results give the same page.
//
// The files, from the top; each uses names of those below it alone:
//
//	page.go         the page, section by section
//	report.go       Results, read and written
//	techniques.go   each part of them in a file of its own: Go benchmarks,
//	dashboards.go   writes while dashboards are refreshed,
//	fairness.go     others while one tenant sends far too much,
//	remotewrite.go  databases,
//	memory.go       memory and large numbers of contexts
//	goals.go        what the collector must be like, and whether it is
//	plot.go         plots
//	clock.go        what a process has used
//	verdict.go      what a run says of a goal
//	results.go      what one receiver spent
//	cells.go        numbers in tables
//	stats.go        medians and intervals
package report

import (
	"encoding/json"
	"fmt"
	"os"
)

// Results are those of one run of the lab: docs/performance/results.json. Parts
// that were not measured are empty.
type Results struct {
	Date     string    `json:"date"` // UTC, of the beginning, as in 2026-11-21
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

	LeftOut []string `json:"left_out,omitempty"` // what was asked for and not measured, and why
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

// Write replaces the file at path.
func (r *Results) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
