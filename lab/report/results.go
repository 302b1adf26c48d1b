package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Machine describes the machine of the measurements.
type Machine struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes uint64 `json:"memory_bytes"`
	Kernel      string `json:"kernel"`

	LoadAverage float64 `json:"load_average"` // over the minute before the run; 0 on a quiet machine
	// Share of the processor time that the hypervisor gave to other machines during the run.
	Stolen *float64 `json:"stolen,omitempty"`
}

// Version is the version of a measured program, or of its compiler.
type Version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Group says what kind of program a receiver is.
type Group string

// A receiver is either a bare receiver, which only counts, or Freshet, or the server of another project.
const (
	Bare Group = "bare"
	Ours Group = "ours"
	Peer Group = "peer"
)

// Load is one kind of traffic, and what receivers spent on it.
type Load struct {
	ID       string  `json:"id"`
	Name     string  `json:"name"`
	Packed   int     `json:"metrics_a_packet"`
	Bytes    int     `json:"bytes_a_packet"`
	Rate     float64 `json:"metrics_a_second"`
	Contexts int     `json:"contexts"`
	Goal     float64 `json:"goal_ratio"` // largest ratio of the collector's cost to the first bare receiver's
	// WholeGoal is the largest allowed ratio of the whole server's cost to the collector's cost; 0 if
	// the whole server is not measured.
	WholeGoal float64 `json:"goal_ratio_of_all,omitempty"`
	Costs     []Cost  `json:"costs"`
}

// Cost is the cost of one receiver.
type Cost struct {
	Name     string  `json:"name"`
	Group    Group   `json:"group"`
	Interval float64 `json:"interval_seconds"`
	Sent     uint64  `json:"sent"`     // metrics in all runs
	Received uint64  `json:"received"` // metrics that the receiver itself counted

	// The lists below have one value for each run.
	Micros      []float64 `json:"cpu_microseconds_a_metric"`
	Rate        []float64 `json:"metrics_a_second"` // metrics that were sent a second
	Resident    []float64 `json:"resident_bytes"`   // resident memory at the end of the run
	Allocations []float64 `json:"allocations_a_metric,omitempty"`
}

// Cost returns the entry of a receiver under a load, to which a run can be added. If there is none,
// it makes one.
func (r *Results) Cost(load Load, name string, group Group, interval time.Duration) *Cost {
	at := slices.IndexFunc(r.Loads, func(l Load) bool { return l.ID == load.ID })
	if at < 0 {
		at = len(r.Loads)
		r.Loads = append(r.Loads, load)
	}
	costs := &r.Loads[at].Costs
	i := slices.IndexFunc(*costs, func(c Cost) bool { return c.Name == name })
	if i < 0 {
		i = len(*costs)
		*costs = append(*costs, Cost{Name: name, Group: group, Interval: interval.Seconds()})
	}
	return &(*costs)[i]
}

// Rate returns the entry of a receiver, to which a search can be added. If there is none, it makes one.
func (r *Results) Rate(name string, group Group) *Rate {
	i := slices.IndexFunc(r.Rates, func(rate Rate) bool { return rate.Name == name })
	if i < 0 {
		i = len(r.Rates)
		r.Rates = append(r.Rates, Rate{Name: name, Group: group})
	}
	return &r.Rates[i]
}

// Lost returns the share of sent metrics that the receiver did not count.
func (c Cost) Lost() float64 {
	if c.Sent == 0 {
		return 0
	}
	return 1 - float64(c.Received)/float64(c.Sent)
}

// Idle is the cost of an idle receiver.
type Idle struct {
	Name     string    `json:"name"`
	Group    Group     `json:"group"`
	Percent  []float64 `json:"percent_of_a_core"`        // value of each run
	Resident []float64 `json:"resident_bytes,omitempty"` // resident memory at the end of each run; older results have none
}

// Rate is the highest rate at which a receiver on one core lost nothing.
type Rate struct {
	Name      string    `json:"name"`
	Group     Group     `json:"group"`
	PerSecond []float64 `json:"metrics_a_second"`     // the rate that each search found
	Sender    bool      `json:"sender_was_the_limit"` // the sender was the limit in at least one search
}

// Scale is the collector's cost with large numbers of contexts.
type Scale struct {
	Million *Million `json:"million,omitempty"`
	Storm   *Storm   `json:"storm,omitempty"`
	Flush   *Storm   `json:"flush,omitempty"` // a million contexts, sent again at half of the highest rate
}

// Million is the memory of live contexts.
type Million struct {
	Contexts       int     `json:"contexts"`
	ResidentBefore float64 `json:"resident_bytes_before"`
	ResidentAfter  float64 `json:"resident_bytes_after"`
	HeapBefore     float64 `json:"heap_bytes_before"`
	HeapAfter      float64 `json:"heap_bytes_after"`
}

// ResidentEntry returns the resident memory of one context, in bytes.
func (m Million) ResidentEntry() float64 {
	return (m.ResidentAfter - m.ResidentBefore) / float64(m.Contexts)
}

// HeapEntry returns the heap memory of one context, in bytes.
func (m Million) HeapEntry() float64 { return (m.HeapAfter - m.HeapBefore) / float64(m.Contexts) }

// Storm is traffic over many contexts, and the ledger's account of its samples.
type Storm struct {
	Seconds       float64 `json:"seconds"`
	Asked         float64 `json:"asked_metrics_a_second"`
	Rate          float64 `json:"metrics_a_second"`
	NewContexts   float64 `json:"new_contexts_a_second"`
	Contexts      int     `json:"contexts"` // contexts since the start
	Sent          uint64  `json:"sent"`     // metrics that were sent
	Received      uint64  `json:"received"`
	Refused       uint64  `json:"refused"`
	Folded        uint64  `json:"folded"` // samples folded into an overflow series, above the soft limit
	KernelDropped uint64  `json:"kernel_dropped"`
	Difference    int64   `json:"ledger_difference"` // 0: every sample is accounted for
}

// of is a filter: it returns the receivers of group g, in the order in which they took turns.
func (l *Load) of(g Group) (all []Cost) {
	for _, c := range l.Costs {
		if c.Group == g {
			all = append(all, c)
		}
	}
	return all
}

// micros returns the median cost of the runs as text, with their spread and the share of lost metrics.
func (c Cost) micros() string {
	if len(c.Micros) == 0 {
		return ""
	}
	return withSpread(c.Micros, micros) + c.lost()
}

// lost returns the lost share as text, or nothing if nothing was lost.
func (c Cost) lost() string {
	switch percent := c.Lost() * 100; {
	case percent == 0:
		return ""
	case percent > 0 && percent < 0.01:
		return ", lost under 0.01 %"
	default:
		return fmt.Sprintf(", lost %s %%", significant(percent))
	}
}

// sorted returns the costs in rising order.
func (l *Load) sorted() []Cost {
	return slices.SortedStableFunc(slices.Values(l.Costs), func(a, b Cost) int {
		return cmp.Compare(Median(a.Micros), Median(b.Micros))
	})
}

// millions is the text of a rate, in millions of metrics a second, with "over" if the sender was the
// limit.
func (r Rate) millions() string {
	text := withSpread(r.PerSecond, func(v float64) string { return fmt.Sprintf("%.2f", v/1e6) })
	if r.Sender {
		text = "over " + text
	}
	return text
}
