// Package diagnose reads a record and names what was likely wrong with the process in that
// moment, with what shows it. What is in a record: docs/format/record.md. What each cause
// looks like and what to do about it: docs/diagnose.md.
//
// A record may come from anybody: what it has is bounded before it is decoded, and text of
// it that is repeated here is what its author wrote.
//
// The files, from the top; each uses names of those below it alone:
//
//	diagnose.go        a record is read, and its causes are ranked
//	cardinality.go     each cause in a file of its own: a flood of series,
//	queries.go         queries that take the processor,
//	small_requests.go  requests of next to nothing,
//	goroutines.go      too many goroutines,
//	kernel_drops.go    datagrams that the kernel dropped,
//	lock.go            a contended lock,
//	garbage.go         garbage,
//	disk.go            a slow disk,
//	malformed.go       malformed lines,
//	stack_growth.go    stacks that grow,
//	stores.go          a store that cannot be opened,
//	cpu_throttling.go  a CPU quota that is used up,
//	starvation.go      no processor,
//	growth.go          series that grow
//	figures.go         figures for people
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

// Diagnosis is what a record says.
type Diagnosis struct {
	Record  Summary           `json:"record"`
	Causes  []Cause           `json:"causes"`  // the likeliest first
	Checked []string          `json:"checked"` // what was looked at and found fine, with its figures
	Missing map[string]string `json:"missing"` // files of the record that could not be read, and why
}

// Summary is of what a diagnosis is.
type Summary struct {
	ID         string    `json:"id"`
	Reason     string    `json:"reason"`
	Began      time.Time `json:"began"`
	Seconds    float64   `json:"seconds"`
	Build      string    `json:"build"`
	GOMAXPROCS int       `json:"gomaxprocs"`
	Cores      float64   `json:"cores_used"` // processors that the process kept busy
}

// looks are those for each cause.
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
	kernelDrops,
	stores,
	malformed,
}

// effects are what each cause brings about besides what it is itself. An effect that is
// found beside a clear cause of it ranks below it. There are no circles:
//
//   - New series over a limit are some under it, too.
//   - New series, and what queries read, are allocated; allocating, starting goroutines and
//     growing stacks take the processors, up to a CPU quota; each of them, or a disk, holds
//     the reader of a socket up.
//   - Each request takes locks and processors, whatever is in it.
//   - A goroutine begins with a small stack, and shares locks with many others.
//   - Who holds a lock and does not get a processor holds it for long, and a system call
//     seems slow if nobody takes its end up. Who holds one while he writes to a slow disk
//     does as well.
//
// That waiting for a lock or a disk lets goroutines pile up needs no entry here: goroutines
// that wait for these are not counted as a storm.
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
}

// effectShare is what an effect's score is at most, of that of its cause.
const effectShare = 0.6

var errTimes = errors.New("the record ends before it begins")

// ReadRecord is Read for a record of size bytes, a zip.
func ReadRecord(from io.ReaderAt, size int64) (*Diagnosis, error) {
	f, err := record.Open(from, size)
	if err != nil {
		return nil, err
	}
	return Read(f)
}

// Read says what a record shows. Files that are missing or cannot be read cost only what
// they would have shown.
func Read(f *record.File) (*Diagnosis, error) {
	if s := f.Seconds(); s <= 0 || s > maxSeconds {
		return nil, errTimes
	}
	m := readMoment(f)
	d := &Diagnosis{
		Record: Summary{ID: f.ID, Reason: f.Reason, Began: f.Began, Seconds: m.seconds, Build: f.Build, GOMAXPROCS: f.GOMAXPROCS, Cores: m.cores()},
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

// rank lowers what is an effect of another cause that is clear, and sorts.
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
				effect.Because += "; lowered, since " + cause.Name + " brings it about"
			}
		}
	}
	slices.SortStableFunc(causes, func(a, b Cause) int { return cmp.Compare(b.Score, a.Score) })
}
