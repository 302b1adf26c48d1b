// Package record describes a record: one zip file with profiles, an execution trace and metrics of
// the process, taken at a moment when something was wrong. role/recorder makes records, and
// core/diagnose finds causes in them. The content of each file: docs/format/record.md.
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

// The files of a record. The profiles come from runtime/pprof.
const (
	Summary      = "record.json"       // a Record
	MetricsBegin = "metrics.begin.txt" // /metrics
	MetricsEnd   = "metrics.end.txt"
	Top          = "top.json"        // the busiest senders, and new series: a list of top.Views
	Stores       = "stores.json"     // stores that cannot be opened: a list of BrokenStores
	Growth       = "growth.json"     // new series, and their bounds: a Growing
	Queries      = "queries.json"    // costs of queries: a list of querycost.Rows
	Requests     = "requests.json"   // senders of remote write and OTLP: a list of Sents
	Nodes        = "cluster.json"    // the nodes of the cluster at the end, as this one sees them: a Cluster
	Trace        = "trace.out"       // execution trace of the seconds before the start
	CPU          = "cpu.pprof"       // during the record
	Goroutines   = "goroutine.pprof" // at the start
	Heap         = "heap.pprof"      // memory in use at the end
	Allocs       = "allocs.pprof"    // during the record
	Mutex        = "mutex.pprof"     // waits for locks during the record, by holder
	Block        = "block.pprof"     // waits during the record, by waiter
)

// Record says when and why a record was made.
type Record struct {
	Format     int               `json:"format"`
	ID         string            `json:"id"`
	Reason     string            `json:"reason"`
	Stage      string            `json:"stage,omitempty"` // the stage that is over its budget
	Spent      float64           `json:"spent_seconds,omitempty"`
	Budget     float64           `json:"budget_seconds,omitempty"`
	Began      time.Time         `json:"began"`
	Ended      time.Time         `json:"ended"`
	Node       string            `json:"node,omitempty"` // the node that made the record; empty if it is in no cluster
	Build      string            `json:"build"`
	GOMAXPROCS int               `json:"gomaxprocs"`
	Runtime    map[string]Values `json:"runtime,omitempty"`    // numbers of runtime/metrics, by name
	Spreads    map[string]Spread `json:"spreads,omitempty"`    // of runtime/metrics, during the record
	CPUQuotas  []CPUQuota        `json:"cpu_quotas,omitempty"` // of the cgroups that the process is in, its own first
	Missing    map[string]string `json:"missing,omitempty"`    // missing files, and why
}

// Duration is how long the profiles run.
const Duration = 5 * time.Second

// Listed is an entry of the list of records.
type Listed struct {
	Record
	Bytes   int64  `json:"bytes"`
	NotKept string `json:"not_kept,omitempty"` // why the record is not on disk; the next record replaces it in memory
	Error   string `json:"error,omitempty"`    // why the record cannot be read
}

// CPUQuota is how many processors a cgroup may use, and how often the quota was not enough.
type CPUQuota struct {
	Cgroup    string  `json:"cgroup"` // directory of the cgroup
	File      string  `json:"file"`   // where the quota is set
	Cores     float64 `json:"cores"`  // quota in processors, on average
	Periods   Values  `json:"periods"`
	Throttled Values  `json:"throttled_periods"` // periods in which the quota was used up
	Stood     Values  `json:"throttled_seconds"` // how long the quota stopped threads, summed over all processors
}

// BrokenStore is a store that cannot be opened, or broke while it was open.
type BrokenStore struct {
	Tenant string    `json:"tenant"`
	Store  string    `json:"store"`
	Since  time.Time `json:"since"`
	Error  string    `json:"error"`
	WayOut string    `json:"way_out"`
	Open   bool      `json:"open,omitempty"`
}

// Growing lists new series and their bounds.
type Growing struct {
	At          int64           `json:"at"` // Unix seconds
	MemoryBytes int64           `json:"memory_bytes"`
	MemoryOf    string          `json:"memory_of"` // owner of the memory, such as "the cgroup"
	Tenants     []GrowingTenant `json:"tenants"`   // the tenant with the most new series first
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

// Sent is the traffic of one sender of remote write or OTLP, per second.
type Sent struct {
	Tenant   string  `json:"tenant"`
	Input    string  `json:"input"` // remote_write or otlp
	From     string  `json:"from"`
	Agent    string  `json:"agent"` // user agent; also part of From
	Requests float64 `json:"requests_per_second"`
	Samples  float64 `json:"samples_per_second"`
	Bytes    float64 `json:"bytes_per_second"` // decompressed
}

// Cluster is the part of the answer of /api/v1/status/cluster that diagnoses need.
type Cluster struct {
	Cluster string `json:"cluster"` // its id; empty if the server is in no cluster
	Leader  string `json:"leader"`  // empty if there is none
	Nodes   []Node `json:"nodes"`
}

// Node is the state of one node. A figure is nil if it is not known.
type Node struct {
	Name      string   `json:"name"`
	Error     string   `json:"error"` // why the node cannot be reached
	Lag       *float64 `json:"lag_seconds"`
	Ahead     *float64 `json:"ahead_seconds"`
	LogAppend *float64 `json:"log_append_seconds"`
	LogPins   []string `json:"log_pins"`
}

// Seconds is the time between begin and end.
func (r *Record) Seconds() float64 { return r.Ended.Sub(r.Began).Seconds() }

// Values holds the values of a number at the beginning and at the end of a record.
type Values struct {
	Begin float64 `json:"begin"`
	End   float64 `json:"end"`
}

// Grown returns the increase of the number.
func (v Values) Grown() float64 { return v.End - v.Begin }

// Spread summarizes a histogram. Quantiles are upper bounds of buckets.
type Spread struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// File is an opened record.
type File struct {
	Record
	zip *zip.Reader
}

// maxFile bounds a decompressed file of a record, in bytes: a record may come from a stranger.
const maxFile = 256 << 20

// maxSummary bounds record.json, in bytes. It usually has 20 kB.
const maxSummary = 4 << 20

// Open opens a record and reads its summary.
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
		err = fmt.Errorf("the record has format %d, and this program reads format %d", f.Format, Format)
	}
	if err != nil {
		return nil, fmt.Errorf("read record: %s: %w", Summary, err)
	}
	return f, nil
}

// Read returns a file of the record. If the file is missing and the record says why, the error says so,
// too.
func (f *File) Read(name string) ([]byte, error) { return f.ReadUpTo(name, maxFile) }

// ReadUpTo is Read with a bound: it returns an error if the file has more than `most` bytes.
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
