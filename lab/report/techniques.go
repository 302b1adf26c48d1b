package report

import (
	"fmt"
	"math"
	"slices"
)

// Techniques are Go benchmarks of different ways to do the same thing. They are not compared with the
// other results, so they may be measured on another day.
type Techniques struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	OthersAtMost  float64 `json:"others_at_most"` // allowed share of other processes; above it, a round is repeated
	RepeatsAtMost int     `json:"repeats_at_most"`

	Parsing  Benchmarks `json:"parsing"`  // lab/dogstatsd6
	Decoders Benchmarks `json:"decoders"` // lab/cortex
	Pools    Benchmarks `json:"pools"`    // lab/m3pool
	Clients  Benchmarks `json:"clients"`  // client
}

// Benchmarks are the benchmarks of one package. Each round measures every technique once. So two
// techniques' figures with the same index are taken seconds apart.
type Benchmarks struct {
	Others   []float64   `json:"others"`   // share of the processor time that other processes took, in each round
	Repeated int         `json:"repeated"` // rounds that were measured again
	All      []Technique `json:"all"`
}

// Technique is one Go benchmark. Its operation is a metric, a sample or a batch.
type Technique struct {
	Group       string    `json:"group"`
	Name        string    `json:"name"`
	Nanoseconds []float64 `json:"ns"` // value of each round
	Bytes       float64   `json:"bytes"`
	Allocations float64   `json:"allocations"`

	GCPercent     []float64 `json:"gc_percent,omitempty"`           // share of the process' CPU time, in each round
	Growths       []float64 `json:"stack_growths,omitempty"`        // growths of an operation, in each round
	GrowthPercent []float64 `json:"stack_growth_percent,omitempty"` // share of the samples of a CPU profile, in each round
}

// comparedWith is the name of the technique with which the other techniques of its group are compared.
const comparedWith = "ours"

// Add adds a round.
func (b *Benchmarks) Add(round []Technique, others float64, repeated int) {
	b.Others = append(b.Others, others)
	b.Repeated += repeated
	for _, t := range round {
		i := slices.IndexFunc(b.All, func(a Technique) bool { return a.Group == t.Group && a.Name == t.Name })
		if i < 0 {
			b.All = append(b.All, t)
			continue
		}
		a := &b.All[i]
		a.Nanoseconds = append(a.Nanoseconds, t.Nanoseconds...)
		a.GCPercent = append(a.GCPercent, t.GCPercent...)
		a.Growths = append(a.Growths, t.Growths...)
		a.GrowthPercent = append(a.GrowthPercent, t.GrowthPercent...)
	}
}

// ratio returns a technique's time divided by our time in the same round: the median, and its 95 %
// interval if there are enough rounds.
func (b Benchmarks) ratio(t Technique) string {
	i := slices.IndexFunc(b.All, func(a Technique) bool { return a.Group == t.Group && a.Name == comparedWith })
	if i < 0 || t.Name == comparedWith {
		return ""
	}
	all := ratios(t.Nanoseconds, b.All[i].Nanoseconds)
	if low, high := MedianInterval(all); !math.IsInf(low, 0) {
		return fmt.Sprintf("%s (%s-%s)", two(Median(all)), two(low), two(high))
	}
	return two(Median(all)) + " of too few rounds"
}

// load returns sentences about the processor time that other processes took, and about the repeated rounds.
func (t *Techniques) load(b Benchmarks) string {
	others := withSpread(percents(b.Others), significant)
	return fmt.Sprintf("Others took %s %% of the processors. ", others) +
		repeatedRuns("round", b.Others, b.Repeated, t.OthersAtMost) + "\n\n"
}

func percents(parts []float64) []float64 {
	all := make([]float64, len(parts))
	for i, p := range parts {
		all[i] = 100 * p
	}
	return all
}

// section returns a section of the page: the sentences of load, and a table of the benchmarks b.
func (t *Techniques) section(b Benchmarks, head []string, row func(Technique) []string) string {
	if len(b.Others) == 0 {
		return notMeasured
	}
	var rows [][]string
	for _, technique := range b.All {
		rows = append(rows, row(technique))
	}
	return t.load(b) + table(head, grouped(rows))
}

func (r *Results) techniques() string {
	all := r.Techniques
	if all == nil || len(all.Parsing.Others) == 0 {
		return notMeasured
	}
	b := all.Parsing
	// The text that holds for all four tables stands before the first table.
	conditions := measured(all.Date, all.Machine, all.Versions) +
		disturbedRule("round", all.OthersAtMost, all.RepeatsAtMost) + "\n\n"
	head := []string{"what", "how", "ns:", "ratio to ours:", "bytes allocated:", "allocations:"}
	return conditions + all.section(b, head, func(t Technique) []string {
		return []string{
			t.Group, t.Name, withSpread(t.Nanoseconds, significant), b.ratio(t), significant(t.Bytes),
			significant(t.Allocations),
		}
	})
}

func (r *Results) decoders() string {
	if r.Techniques == nil {
		return notMeasured
	}
	b := r.Techniques.Decoders
	head := []string{
		"shape", "how", "ns a sample:", "ratio to ours:", "bytes allocated:", "allocations:", "percent of CPU for GC:",
	}
	return r.Techniques.section(b, head, func(t Technique) []string {
		return []string{
			t.Group, t.Name, withSpread(t.Nanoseconds, significant), b.ratio(t), significant(t.Bytes),
			significant(t.Allocations), ifAny(t.GCPercent, significant),
		}
	})
}

func (r *Results) pools() string {
	if r.Techniques == nil {
		return notMeasured
	}
	b := r.Techniques.Pools
	head := []string{"work", "how", "ns:", "ratio to ours:", "allocations:", "stack growths:", "percent of CPU in them:"}
	return r.Techniques.section(b, head, func(t Technique) []string {
		return []string{
			t.Group, t.Name, withSpread(t.Nanoseconds, significant), b.ratio(t), significant(t.Allocations),
			ifAny(t.Growths, significant), ifAny(t.GrowthPercent, significant),
		}
	})
}

func (r *Results) clients() string {
	if r.Techniques == nil {
		return notMeasured
	}
	b := r.Techniques.Clients
	head := []string{"call", "client", "ns:", "ratio to ours:", "bytes allocated:", "allocations:"}
	return r.Techniques.section(b, head, func(t Technique) []string {
		return []string{
			t.Group, t.Name, withSpread(t.Nanoseconds, significant), b.ratio(t), significant(t.Bytes),
			significant(t.Allocations),
		}
	})
}
