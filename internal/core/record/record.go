// Package record is what is kept of a moment in which something was wrong: one zip file
// with profiles, an execution trace and metrics of the process. Making one is
// role/recorder's business, and reading causes out of it core/diagnose's. What stands in
// which file: docs/format/record.md.
package record

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/freshet-io/freshet/internal/core/growth"
)

// Format is the version of the layout.
const Format = 1

// The files of a record. Profiles are those of runtime/pprof; "of the time" means what was
// added between begin and end.
const (
	Summary      = "record.json"       // a Record
	MetricsBegin = "metrics.begin.txt" // what /metrics had
	MetricsEnd   = "metrics.end.txt"
	Top          = "top.json"        // who sends most, and what is new: a list of Tops
	Stores       = "stores.json"     // those that cannot be opened: a list of BrokenStores
	Growth       = "growth.json"     // series that are new, and what bounds them: a Growing
	Queries      = "queries.json"    // what queries cost: a list of querycost.Rows
	Requests     = "requests.json"   // who sends remote write and OTLP: a list of Sents
	Trace        = "trace.out"       // execution trace of the seconds before the begin
	CPU          = "cpu.pprof"       // of the time
	Goroutines   = "goroutine.pprof" // at the begin
	Heap         = "heap.pprof"      // in use at the end
	Allocs       = "allocs.pprof"    // of the time
	Mutex        = "mutex.pprof"     // of the time, by who held the lock
	Block        = "block.pprof"     // of the time, by who waited
)

// Record says what a record is of.
type Record struct {
	Format     int               `json:"format"`
	ID         string            `json:"id"`
	Reason     string            `json:"reason"`
	Stage      string            `json:"stage,omitempty"` // that was over its budget
	Spent      float64           `json:"spent_seconds,omitempty"`
	Budget     float64           `json:"budget_seconds,omitempty"`
	Began      time.Time         `json:"began"`
	Ended      time.Time         `json:"ended"`
	Build      string            `json:"build"`
	GOMAXPROCS int               `json:"gomaxprocs"`
	Runtime    map[string]Values `json:"runtime,omitempty"`    // numbers of runtime/metrics, by their names there
	Spreads    map[string]Spread `json:"spreads,omitempty"`    // histograms of runtime/metrics, of the time
	CPUQuotas  []CPUQuota        `json:"cpu_quotas,omitempty"` // of the cgroups that the process is in, its own first
	Missing    map[string]string `json:"missing,omitempty"`    // files that are not there, and why
}

// Duration is how long profiles of the time are taken.
const Duration = 5 * time.Second

// Listed is a record that can be read.
type Listed struct {
	Record
	Bytes   int64  `json:"bytes"`
	NotKept string `json:"not_kept,omitempty"` // why it is only in memory, until another is made
	Error   string `json:"error,omitempty"`    // it cannot be read
}

// CPUQuota is how many processors a cgroup may use, and how often that was not enough.
type CPUQuota struct {
	Cgroup    string  `json:"cgroup"` // its directory
	File      string  `json:"file"`   // where the quota stands
	Cores     float64 `json:"cores"`  // processors, on average
	Periods   Values  `json:"periods"`
	Throttled Values  `json:"throttled_periods"` // in which the quota was used up
	Stood     Values  `json:"throttled_seconds"` // in which threads stood still therefore, of all processors together
}

// BrokenStore is a store that cannot be opened, or is open and broke since.
type BrokenStore struct {
	Tenant string    `json:"tenant"`
	Store  string    `json:"store"`
	Since  time.Time `json:"since"`
	Error  string    `json:"error"`
	WayOut string    `json:"way_out"`
	Open   bool      `json:"open,omitempty"`
}

// Growing is what series are new, and what bounds them.
type Growing struct {
	At          int64           `json:"at"` // Unix seconds
	MemoryBytes int64           `json:"memory_bytes"`
	MemoryOf    string          `json:"memory_of"` // what has so much, such as "the cgroup"
	Tenants     []GrowingTenant `json:"tenants"`   // most new series first
}

// GrowingTenant is a tenant that has new series.
type GrowingTenant struct {
	growth.Tenant
	Limits []SeriesLimit `json:"limits"`
}

// SeriesLimit bounds the series of a tenant.
type SeriesLimit struct {
	Store     string `json:"store"`
	Setting   string `json:"setting"`
	Series    int    `json:"series"`
	PerMetric bool   `json:"per_metric,omitempty"`
}

// Sent is what one sender of remote write or OTLP sends, a second.
type Sent struct {
	Tenant   string  `json:"tenant"`
	Input    string  `json:"input"` // remote_write or otlp
	From     string  `json:"from"`
	Agent    string  `json:"agent"` // user agent, which is part of From too
	Requests float64 `json:"requests_per_second"`
	Samples  float64 `json:"samples_per_second"`
	Bytes    float64 `json:"bytes_per_second"` // decompressed
}

// Seconds is the time between begin and end.
func (r *Record) Seconds() float64 { return r.Ended.Sub(r.Began).Seconds() }

// Values are a number at the begin and at the end.
type Values struct {
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
}

// Grown is by how much the number rose.
func (v Values) Grown() float64 { return v.End - v.Begin }

// Spread is what a histogram counted. Quantiles are upper bounds of buckets.
type Spread struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// File is a record that was opened.
type File struct {
	Record
	zip *zip.Reader
}

// maxFile bounds a file of a record, decompressed, in bytes: a record may come from
// somebody else.
const maxFile = 256 << 20

// maxSummary bounds record.json, which has some 20 kB.
const maxSummary = 4 << 20

// Open reads what a record is of.
func Open(from io.ReaderAt, size int64) (*File, error) {
	z, err := zip.NewReader(from, size)
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	f := &File{zip: z}
	text, err := f.ReadUpTo(Summary, maxSummary)
	if err == nil {
		err = json.Unmarshal(text, &f.Record)
	}
	if err == nil && f.Format != Format {
		err = fmt.Errorf("it has format %d, and this is a program for format %d", f.Format, Format)
	}
	if err != nil {
		return nil, fmt.Errorf("read record: %s: %w", Summary, err)
	}
	return f, nil
}

// Read is a file of the record. One that is missing is an error, which says why if the
// record does.
func (f *File) Read(name string) ([]byte, error) { return f.ReadUpTo(name, maxFile) }

// ReadUpTo is Read of a file that has at most so many bytes; a longer one is an error.
func (f *File) ReadUpTo(name string, most int64) ([]byte, error) {
	part, err := f.zip.Open(name)
	if err != nil {
		if why := f.Missing[name]; why != "" {
			return nil, errors.New(why)
		}
		return nil, err
	}
	defer part.Close()
	text, err := io.ReadAll(io.LimitReader(part, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return text, err
}
