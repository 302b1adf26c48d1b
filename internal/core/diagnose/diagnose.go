// Package diagnose reads a record and names what was likely wrong with the process at that
// moment, with evidence. The content of a record: docs/format/record.md. The causes and what to
// do about each: docs/diagnose.md.
//
// A record may come from anyone. So its parts are bounded before they are decoded, and text quoted
// from it is never trusted.
//
// The files, from the top; each uses only names of files below it:
//
//	diagnose.go        reads a record and ranks its causes
//	cardinality.go     a cause: a flood of series
//	queries.go         a cause: queries that take the processor
//	small_requests.go  a cause: tiny requests
//	goroutines.go      a cause: too many goroutines
//	cluster.go         causes: faults of a cluster's nodes, disks, clocks and network
//	kernel_drops.go    a cause: datagrams that the kernel dropped
//	lock.go            a cause: a contended lock
//	garbage.go         a cause: garbage
//	disk.go            a cause: a slow disk
//	malformed.go       a cause: malformed lines
//	stack_growth.go    a cause: stacks that grow
//	stores.go          a cause: a store that cannot be opened
//	cpu_throttling.go  a cause: a CPU quota that is used up
//	starvation.go      a cause: too few processors
//	growth.go          a cause: series that grow
//	figures.go         formats figures
//	moment.go          a record, decoded
//	traced.go          its execution trace
//	samples.go         its metrics
//	cause.go           what a cause is: its name, evidence and score
//	profiled.go        profiles, and stacks
package diagnose

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/record"
)

// Diagnosis has the findings about a record.
type Diagnosis struct {
	Record  Summary           `json:"record"`
	Causes  []Cause           `json:"causes"`  // the likeliest first
	Checked []string          `json:"checked"` // checks that found no fault, with their figures
	Missing map[string]string `json:"missing"` // files of the record that could not be read, and why
}

// Summary identifies the record of a diagnosis.
type Summary struct {
	ID         string    `json:"id"`
	Reason     string    `json:"reason"`
	Began      time.Time `json:"began"`
	Seconds    float64   `json:"seconds"`
	Node       string    `json:"node,omitempty"` // the node that made the record; empty if it is in no cluster
	Build      string    `json:"build"`
	GOMAXPROCS int       `json:"gomaxprocs"`
	Cores      float64   `json:"cores_used"` // processors that the process kept busy
}

// looks are the checks, one for each cause.
var looks = []func(*moment) finding{
	cpuThrottling,
	cardinality,
	growing,
	queries,
	smallRequests,
	stackGrowth,
	garbage,
	lock,
	goroutines,
	starvation,
	disk,
	parted,
	slowLog,
	slowNode,
	apartClocks,
	kernelDrops,
	stores,
	malformed,
}

// effects lists the effects of each cause. An effect that is found together with its clear cause
// ranks below the cause. The effects have no cycles:
//
//   - A flood over a limit also makes new series below the limit.
//   - New series and the results of queries are allocated. Allocations, new goroutines
//     and growing stacks take the processors, up to a CPU quota. Each of these, or a slow disk,
//     holds up the reader of a socket.
//   - Each request takes locks and processors, whatever is in it.
//   - A goroutine begins with a small stack, and shares locks with many others.
//   - A goroutine that holds a lock and gets no processor holds it for long, and its system
//     calls seem slow. A goroutine that writes to a slow disk under a lock holds it for long, too.
//   - A node whose log is on a slow disk lags behind.
//
// Goroutines also pile up while they wait for a lock or a disk. No entry is needed for this,
// because such goroutines are not counted as a storm.
var effects = []struct {
	cause   string
	effects []string
}{
	{Cardinality, []string{Growth, Garbage, StackGrowth, Lock, Starvation, Disk, KernelDrops}},
	{Queries, []string{Garbage, StackGrowth, Lock, CPUThrottling, Starvation, Disk, KernelDrops}},
	{SmallRequests, []string{Garbage, StackGrowth, Lock, CPUThrottling, Starvation, Disk, KernelDrops}},
	{Goroutines, []string{Garbage, StackGrowth, Lock, CPUThrottling, Starvation, Disk, KernelDrops}},
	{StackGrowth, []string{Garbage, Lock, CPUThrottling, Starvation, Disk, KernelDrops}},
	{Garbage, []string{Lock, CPUThrottling, Starvation, Disk, KernelDrops}},
	{CPUThrottling, []string{Lock, Starvation, Disk, KernelDrops}},
	{Starvation, []string{Lock, Disk, KernelDrops}},
	{Disk, []string{Lock, KernelDrops}},
	{Lock, []string{KernelDrops}},
	{SlowLog, []string{SlowNode}},
}

// effectShare bounds an effect's score, as a part of its cause's score.
const effectShare = 0.6

var errTimes = errors.New("the record ends before it begins")

// ReadRecord is Read for a record in a zip file of `size` bytes.
func ReadRecord(from io.ReaderAt, size int64) (*Diagnosis, error) {
	f, err := record.Open(from, size)
	if err != nil {
		return nil, err
	}
	return Read(f)
}

// Read names the causes that a record shows. If a file of the record is missing or cannot be read,
// only the evidence in that file is missing.
func Read(f *record.File) (*Diagnosis, error) {
	if s := f.Seconds(); s <= 0 || s > maxSeconds {
		return nil, errTimes
	}
	m := readMoment(f)
	d := &Diagnosis{
		Record: Summary{
			ID: f.ID, Reason: f.Reason, Began: f.Began, Seconds: m.seconds, Node: f.Node, Build: f.Build,
			GOMAXPROCS: f.GOMAXPROCS, Cores: m.cores(),
		},
		Causes: []Cause{}, Checked: []string{}, Missing: m.missing,
	}
	for _, look := range looks {
		found := look(m)
		found.Score = math.Round(100*found.Score) / 100
		if found.Score < Listed {
			d.Checked = append(d.Checked, found.fine)
			continue
		}
		d.Causes = append(d.Causes, found.Cause)
	}
	rank(d.Causes)
	return d, nil
}

// rank lowers the scores of the effects of clear causes, and sorts the causes.
func rank(causes []Cause) {
	named := func(name string) *Cause {
		i := slices.IndexFunc(causes, func(c Cause) bool { return c.Name == name })
		if i < 0 {
			return nil
		}
		return &causes[i]
	}
	for _, e := range effects {
		cause := named(e.cause)
		if cause == nil || cause.Score < Clear {
			continue
		}
		for _, name := range e.effects {
			effect := named(name)
			if most := math.Round(100*effectShare*cause.Score) / 100; effect != nil && effect.Score > most {
				effect.Score = most
				effect.Because += "; lowered, because it is an effect of " + cause.Name
			}
		}
	}
	slices.SortStableFunc(causes, func(a, b Cause) int { return cmp.Compare(b.Score, a.Score) })
}
