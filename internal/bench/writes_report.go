package bench

import (
	"fmt"
	"io"
	"strings"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/settings"
)

// writeLoad describes the load, and the receiver that got it.
type writeLoad struct {
	Build           string  `json:"build"`
	Receiver        string  `json:"receiver"` // role of the receiver if bench started it, otherwise its address
	Version         int     `json:"remote_write_version"`
	Series          int     `json:"series"`
	Labels          int     `json:"labels"`
	Batch           int     `json:"samples_per_request"`
	RatePerSecond   float64 `json:"asked_samples_per_second"` // 0 for as fast as possible
	IntervalSeconds float64 `json:"interval_seconds"`
	Live            bool    `json:"live"`
	NewShare        float64 `json:"new_series_share_per_round"`
	Connections     int     `json:"connections"`
	Seed            uint64  `json:"seed"`
	Job             string  `json:"job"` // label job of all series
}

func (b *writeBench) describe() writeLoad {
	l := writeLoad{
		Build: build.This().String(), Receiver: b.server.Address, Version: b.load.Version, Series: b.load.Series,
		Labels: b.load.Labels,
		Batch:  b.load.Batch, RatePerSecond: b.rate, IntervalSeconds: b.interval().Seconds(), Live: b.live,
		NewShare:    b.load.NewShare,
		Connections: b.writer.Connections, Seed: b.load.Seed, Job: b.load.Job(),
	}
	if b.server.Address == "" {
		l.Receiver = "role " + settings.RoleAll
	}
	return l
}

// headline says what was measured.
func (b *writeBench) headline() string {
	l := b.describe()
	text := fmt.Sprintf("%s, remote write %d.0: %s series with %d labels, %s a request, %d connections",
		l.Receiver, l.Version,
		terminal.Thousands(uint64(l.Series)), l.Labels, terminal.Thousands(uint64(min(l.Batch, l.Series))), l.Connections)
	if l.NewShare > 0 {
		text += fmt.Sprintf(", %g %% of the series new each round", 100*l.NewShare)
	}
	return text
}

// writeFigures are the figures of a writeCost, with their names for people.
var writeFigures = []struct {
	name string
	of   func(writeCost) float64
	text func(float64) string
}{
	{"acknowledged, samples/s", func(c writeCost) float64 { return c.SamplesPerSecond }, wholeRate},
	{"CPU, s a million samples", func(c writeCost) float64 { return c.CPUSeconds }, decimals(3)},
	{"  user", func(c writeCost) float64 { return c.CPUUserSeconds }, decimals(3)},
	{"  system", func(c writeCost) float64 { return c.CPUSystemSeconds }, decimals(3)},
	{"CPU, us a new series", func(c writeCost) float64 { return c.NewSeriesMicros }, decimals(2)},
	{"CPU, % of a core", func(c writeCost) float64 { return c.CPUPercent }, decimals(1)},
	{"GC, % of the CPU", func(c writeCost) float64 { return c.GCPercent }, decimals(1)},
	{"allocations a sample", func(c writeCost) float64 { return c.Allocations }, decimals(4)},
	{"allocated bytes a sample", func(c writeCost) float64 { return c.AllocatedBytes }, decimals(1)},
	{"acknowledged after, ms, p50", func(c writeCost) float64 { return c.P50 }, decimals(2)},
	{"  p90", func(c writeCost) float64 { return c.P90 }, decimals(2)},
	{"  p99", func(c writeCost) float64 { return c.P99 }, decimals(2)},
	{"  longest", func(c writeCost) float64 { return c.Max }, decimals(2)},
	{"resident bytes a series", func(c writeCost) float64 { return c.ResidentPerSeries }, decimals(0)},
	{"resident memory, MB", func(c writeCost) float64 { return c.ResidentBytes }, megabytes},
	{"live heap, MB", func(c writeCost) float64 { return c.HeapLiveBytes }, megabytes},
	{"sender's CPU, s a million samples", func(c writeCost) float64 { return c.SenderCPUSeconds }, decimals(3)},
}

// print prints the result of a run.
func (b *writeBench) print(r writeRun) error {
	b.line.Clear()
	if b.asJSON {
		return terminal.PrintJSON(b.view.Out, struct {
			Load writeLoad `json:"load"`
			Run  writeRun  `json:"run"`
		}{b.describe(), r})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", b.headline())
	rows := [][]string{
		{"books", "samples", "series", ""},
		{"sent", terminal.Thousands(r.SentSamples), terminal.Thousands(r.SentSeries), ""},
		{"acknowledged", terminal.Thousands(r.WrittenSamples), "", terminal.Share(r.WrittenSamples, r.SentSamples)},
		{"found by a query", terminal.Thousands(r.FoundSamples), terminal.Thousands(r.FoundSeries),
			terminal.Share(r.FoundSamples, r.WrittenSamples)},
	}
	if err := terminal.WriteTable(&text, rows, 3); err != nil {
		return err
	}
	if r.Refused != "" {
		fmt.Fprintf(&text, "the receiver refused some samples: %s\n", terminal.Printable(r.Refused))
	}
	if r.Retries > 0 {
		fmt.Fprintf(&text, "requests were retried %s times\n", terminal.Thousands(r.Retries))
	}
	text.WriteByte('\n')
	rows = [][]string{{fmt.Sprintf("cost over %.1f s, %d rounds of %s requests, %d bytes each", r.Cost.Seconds, r.Rounds-1,
		terminal.Thousands(uint64(b.load.Requests())), r.SentBytes/max(1, r.SentRequests)), ""}}
	for _, f := range writeFigures {
		rows = append(rows, []string{f.name, f.text(f.of(r.Cost))})
	}
	if err := terminal.WriteTable(&text, rows, 1); err != nil {
		return err
	}
	if reached := r.Cost.SamplesPerSecond; reached < reachedShare*b.rate {
		fmt.Fprintf(&text, "\nThe receiver did not accept %s samples/s over %d connections.\n", wholeRate(b.rate),
			b.writer.Connections)
	}
	_, err := io.WriteString(b.view.Out, text.String())
	return err
}
