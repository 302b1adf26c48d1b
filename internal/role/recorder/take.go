package recorder

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"math"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/google/pprof/profile"
	"github.com/prometheus/common/expfmt"

	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/lib/cgroup"
)

// topWait is how long Top may take: it waits for a second that is counted whole. Counting takes processor time while
// a stage is late, so it ends this long after the record.
const topWait = 5 * time.Second

// taking is a record that is being made.
type taking struct {
	record record.Record
	files  map[string][]byte
}

// put adds a file, or the reason why the file is missing: a record with a missing part is still
// useful.
func (t *taking) put(name string, text []byte, err error) {
	if err != nil {
		t.record.Missing[name] = err.Error()
		return
	}
	t.files[name] = text
}

// added has the files of the profiles that count from the start of the process, by profile. A record has
// only what these profiles added while the record was made.
var added = map[string]string{"allocs": record.Allocs, "mutex": record.Mutex, "block": record.Block}

// take makes a record of the present state and of the next seconds.
func (r *Recorder) take(ctx context.Context, of record.Record) (record.Record, []byte, error) {
	t := &taking{record: of, files: map[string][]byte{}}
	rec := &t.record
	rec.Format, rec.Node, rec.Build, rec.GOMAXPROCS = record.Format, r.Node, r.Build, runtime.GOMAXPROCS(0)
	rec.Missing = map[string]string{}
	rec.Began = time.Now()
	rec.ID = newID(rec)

	// First take the parts that are soon overwritten. If the flight recorder was stopped, there is
	// no trace of the time before the record, so the trace covers the time of the record.
	rested := r.fly()
	if !rested {
		text, err := r.flightTrace()
		t.put(record.Trace, text, err)
	}
	text, err := profileNow("goroutine")
	t.put(record.Goroutines, text, err)
	begin := readRuntime()
	text, err = r.metricsText()
	t.put(record.MetricsBegin, text, err)
	before := map[string][]byte{}
	for name := range added {
		before[name], _ = profileNow(name)
	}

	looking := make(chan struct{})
	go func() { // the first call of Top starts counting senders
		defer close(looking)
		_, _ = r.Top(ctx, r.duration+topWait) // ignored, since the answer covers only a second or two
	}()
	// Making a record takes processor time, too, so measure the throttling only during the CPU profile.
	quotas, _ := cgroup.CPUs(r.root) // empty if the cgroups cannot be read
	t.cpu(ctx, r.duration)
	after, _ := cgroup.CPUs(r.root)
	rec.CPUQuotas = throttling(quotas, after)

	end := readRuntime()
	rec.Ended = time.Now()
	if rested {
		text, err = r.flightTrace()
		t.put(record.Trace, text, err)
	}
	rec.Runtime, rec.Spreads = difference(begin, end)
	for name, file := range added {
		after, err := profileNow(name)
		if err == nil {
			after, err = subtract(after, before[name])
		}
		t.put(file, after, err)
	}
	text, err = profileNow("heap")
	t.put(record.Heap, text, err)
	text, err = r.metricsText()
	t.put(record.MetricsEnd, text, err)
	<-looking
	list, err := r.Top(ctx, topWait)
	if err == nil {
		text, err = json.Marshal(list)
	}
	t.put(record.Top, text, err)
	text, err = r.broken()
	t.put(record.Stores, text, err)
	text, err = json.Marshal(r.Growing())
	t.put(record.Growth, text, err)
	text, err = json.Marshal(r.Queries())
	t.put(record.Queries, text, err)
	text, err = json.Marshal(r.Sent())
	t.put(record.Requests, text, err)
	text, err = json.Marshal(r.Cluster(ctx))
	t.put(record.Nodes, text, err)
	text, err = t.zip()
	return *rec, text, err
}

// throttling returns how much each cgroup with a quota was throttled.
func throttling(begin, end []cgroup.CPU) (all []record.CPUQuota) {
	for _, e := range end {
		i := slices.IndexFunc(begin, func(b cgroup.CPU) bool { return b.Dir == e.Dir })
		if i < 0 {
			continue
		}
		b := begin[i]
		all = append(all, record.CPUQuota{
			Cgroup: e.Dir, File: e.File, Cores: e.Cores, Periods: record.Values{Begin: b.Periods, End: e.Periods},
			Throttled: record.Values{Begin: b.Throttled, End: e.Throttled},
			Stood:     record.Values{Begin: b.Seconds, End: e.Seconds},
		})
	}
	return all
}

// cpu takes a CPU profile for the time of the record.
func (t *taking) cpu(ctx context.Context, d time.Duration) {
	var profile bytes.Buffer
	err := pprof.StartCPUProfile(&profile) // fails while another profile runs
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if err == nil {
		pprof.StopCPUProfile()
	}
	t.put(record.CPU, profile.Bytes(), err)
}

func profileNow(name string) ([]byte, error) {
	var text bytes.Buffer
	err := pprof.Lookup(name).WriteTo(&text, 0)
	return text.Bytes(), err
}

// subtract returns how much a profile has grown since an earlier copy of it.
func subtract(after, before []byte) ([]byte, error) {
	a, err := profile.ParseData(after)
	if err != nil {
		return nil, err
	}
	b, err := profile.ParseData(before)
	if err != nil {
		return nil, err
	}
	b.Scale(-1)
	d, err := profile.Merge([]*profile.Profile{a, b})
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = d.Write(&text)
	return text.Bytes(), err
}

func (r *Recorder) metricsText() ([]byte, error) {
	families, err := r.Gatherer.Gather()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// zip returns the record as a zip file.
func (t *taking) zip() ([]byte, error) {
	summary, err := json.MarshalIndent(&t.record, "", "  ")
	if err != nil {
		return nil, err
	}
	t.files[record.Summary] = summary
	var text bytes.Buffer
	z := zip.NewWriter(&text)
	for _, name := range []string{
		record.Summary, record.MetricsBegin, record.MetricsEnd, record.Top, record.Stores, record.Growth, record.Queries,
		record.Requests, record.Nodes, record.Trace,
		record.CPU, record.Goroutines, record.Heap, record.Allocs, record.Mutex, record.Block,
	} {
		content, there := t.files[name]
		if !there {
			continue
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: t.record.Ended})
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			return nil, err
		}
	}
	err = z.Close()
	return text.Bytes(), err
}

// readRuntime reads all metrics of the runtime. It does not stop the world.
func readRuntime() []metrics.Sample {
	var all []metrics.Sample
	for _, d := range metrics.All() {
		all = append(all, metrics.Sample{Name: d.Name})
	}
	metrics.Read(all)
	return all
}

// difference returns the values of the runtime's metrics at two reads, and the spread of each histogram
// between the reads.
func difference(begin, end []metrics.Sample) (map[string]record.Values, map[string]record.Spread) {
	values, spreads := map[string]record.Values{}, map[string]record.Spread{}
	for i := range begin {
		name := begin[i].Name
		switch begin[i].Value.Kind() {
		case metrics.KindUint64:
			values[name] = record.Values{Begin: float64(begin[i].Value.Uint64()), End: float64(end[i].Value.Uint64())}
		case metrics.KindFloat64:
			values[name] = record.Values{Begin: begin[i].Value.Float64(), End: end[i].Value.Float64()}
		case metrics.KindFloat64Histogram:
			spreads[name] = spreadOf(begin[i].Value.Float64Histogram(), end[i].Value.Float64Histogram())
		}
	}
	return values, spreads
}

// spreadOf returns the counts of a histogram between two reads.
func spreadOf(begin, end *metrics.Float64Histogram) (s record.Spread) {
	counts := make([]uint64, len(end.Counts))
	for i := range counts {
		counts[i] = end.Counts[i] - begin.Counts[i]
		s.Count += counts[i]
	}
	var seen uint64
	for i, n := range counts {
		if n == 0 {
			continue
		}
		bound := end.Buckets[i+1]
		if math.IsInf(bound, 0) {
			bound = end.Buckets[i]
		}
		if seen*2 < s.Count {
			s.P50 = bound
		}
		if seen*100 < s.Count*99 {
			s.P99 = bound
		}
		s.Max = bound
		seen += n
	}
	return s
}
