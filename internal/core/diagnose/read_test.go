package diagnose

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/core/top"
)

// trim takes full records from the lab (go run -C lab ./diagnose --runs 1 --keep DIR) and writes
// their small parts to testdata: go test ./internal/core/diagnose -trim DIR
var trim = flag.String("trim", "", "write testdata from the records in this directory")

// realRecords lists the records in testdata, by the row of the lab that made them. Each has the
// cause that must come first and the words that the cause must contain: the function, or the
// metric, the label and the sender. An empty cause means that no cause may be clear, since nothing
// is wrong or the fault has no effect.
var realRecords = []struct{ row, cause, says string }{
	{StackGrowth, StackGrowth, "fault.deep"},
	{Garbage, Garbage, "fault.waste"},
	{Lock, Lock, "fault.hold"},
	{Goroutines, Goroutines, "fault.linger"},
	{Starvation, Starvation, "fault.busy"},
	{KernelDrops, KernelDrops, "listener udp://127.0.0.1"},
	{Cardinality, Cardinality, "metric bench_requests_new: label pod"},
	{"none", "", ""},
	{"cpu_quota", CPUThrottling, "cgroup /sys/fs/cgroup/cpu/freshet-lab-"},
	{"cpu_quota_remote_write", CPUThrottling, "cgroup /sys/fs/cgroup/cpu/freshet-lab-"},
	{"cpu_quota_unused", "", ""},
	{"small_buffer", KernelDrops, "its receive buffer (dogstatsd.receive_buffer) has 4KiB"},
	{"short_queue_unfilled", "", ""},
	{"store_while_running", Stores, "tenant default, store 10s"},
	{"store_moved", Stores, "move the directory back to"},
	{"malformed_unixgram", Malformed, "lab.bad:one|c"},
	{"malformed_once", "", ""},
	{"cardinality_remote_write", Cardinality,
		"tenant default, metric requests_total, label request, from 127.0.0.1 (shop/1)"},
	{"growth", Growth,
		"tenant default, metric requests_total, label request, from 127.0.0.1 (shop/1); " +
			"ingest.max_series (1,000,000) is reached in"},
	{"queries", Queries,
		"tenant default asks sum by (pod) (rate(http_request_duration_seconds_bucket{job=~?,pod=~?}[?])), " +
			"from 127.0.0.1 (Grafana/12.1), dashboard lab, panel "},
	{"queries_few", "", ""},
	{"small_requests", SmallRequests,
		"of tenant default, from 127.0.0.1 (tiny/1); remote_write.queue_config.max_samples_per_send: 2000 would make them "},
	{"small_requests_few", "", ""},
}

// Each record is from the real server and has one fault, whose cause must come first. No record has a
// slow disk: only a trace shows a slow disk, and a trace is too large to keep. TestTrace makes such a
// trace.
func TestRealRecords(t *testing.T) {
	for _, r := range realRecords {
		t.Run(r.row, func(t *testing.T) {
			file := filepath.Join("testdata", r.row+".zip")
			if *trim != "" {
				trimRecord(t, filepath.Join(*trim, r.row+"-1.zip"), file)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d := read(t, text)
			if r.cause == "" {
				if len(d.Causes) > 0 && d.Causes[0].Score >= Clear {
					t.Errorf("no fault, but the first cause is clear: %+v", d.Causes[0])
				}
				return
			}
			if len(d.Causes) == 0 || d.Causes[0].Name != r.cause || d.Causes[0].Score < Clear {
				t.Fatalf("the wrong cause is first: %s", causesText(d.Causes))
			}
			if len(d.Causes)+len(d.Checked) != len(looks) {
				t.Errorf("got %d causes and %d checks that found no fault, want %d in total",
					len(d.Causes), len(d.Checked), len(looks))
			}
			shown, _ := json.Marshal(d.Causes[0])
			if !strings.Contains(string(shown), r.says) {
				t.Errorf("%q is not in the evidence: %s", r.says, shown)
			}
		})
	}
}

func read(t *testing.T, zip []byte) *Diagnosis {
	t.Helper()
	f, err := record.Open(bytes.NewReader(zip), int64(len(zip)))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// trimRecord copies the small parts of a record, and removes the names of files from profiles.
func trimRecord(t *testing.T, from, to string) {
	t.Helper()
	z, err := zip.OpenReader(from)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range z.File {
		part, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		switch f.Name {
		case record.Trace, record.Heap:
			continue
		case record.MetricsBegin, record.MetricsEnd:
			text = trimMetrics(text)
		case record.CPU, record.Goroutines, record.Allocs, record.Mutex, record.Block:
			text = trimProfile(t, text)
		}
		p, err := w.Create(f.Name)
		if err == nil {
			_, err = p.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// trimMetrics keeps the metrics that diagnose reads.
func trimMetrics(text []byte) (kept []byte) {
	for line := range strings.Lines(string(text)) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# TYPE "), "# HELP ")
		if hasPrefix(name, "freshet_stage_seconds", "freshet_limit_", "freshet_dogstatsd_", "freshet_distributor_refused",
			"freshet_store_", "freshet_aggregator_", "process_cpu", "process_resident_memory_bytes",
			"prometheus_tsdb_head_series", "freshet_query_wait") &&
			!strings.HasPrefix(line, "# HELP") {
			kept = append(kept, line...)
		}
	}
	return kept
}

func trimProfile(t *testing.T, text []byte) []byte {
	t.Helper()
	p, err := profile.ParseData(text)
	if err != nil {
		t.Fatal(err)
	}
	p.Mapping = nil
	for _, f := range p.Function {
		f.Filename = ""
	}
	for _, l := range p.Location {
		l.Mapping, l.Address = nil, 0
	}
	for _, s := range p.Sample {
		s.Label, s.NumLabel = map[string][]string{"query": s.Label["query"]}, nil
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// zipOf returns a record with these files.
func zipOf(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, text := range files {
		p, err := w.Create(name)
		if err == nil {
			_, err = p.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const summary = `{"format":1,"id":"x","began":"2026-11-21T23:57:56Z","ended":"2026-11-21T23:58:01Z","gomaxprocs":2,` +
	`"missing":{"trace.out":"the flight recorder is not running"}}`

// A record in which most files are missing is read as far as possible, and the diagnosis lists the
// missing files.
func TestMissing(t *testing.T) {
	d := read(t,
		zipOf(t,
			map[string][]byte{
				record.Summary: []byte(summary), record.CPU: []byte("not a profile"), record.MetricsEnd: []byte("freshet_x 1\n"),
			}))
	if len(d.Causes) > 0 || len(d.Checked) != len(looks) {
		t.Errorf("a record without a fault: got %d causes and %d passed checks, want 0 and %d",
			len(d.Causes), len(d.Checked),
			len(looks))
	}
	if why := d.Missing[record.Trace]; why != "the flight recorder is not running" {
		t.Errorf("wrong reason why trace.out is missing: %q", why)
	}
	for name, missing := range map[string]bool{record.CPU: true, record.Top: true, record.MetricsBegin: true,
		record.MetricsEnd: false} {
		if _, is := d.Missing[name]; is != missing {
			t.Errorf("%s is missing: got %t, want %t", name, is, missing)
		}
	}
}

// A gigabyte of zeros takes a megabyte in a zip, and a kilobyte in a compressed profile in a zip.
// Such a file is not unpacked.
func TestBombs(t *testing.T) {
	zeros := make([]byte, maxText+1)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(zeros[:maxProfile+1])
	if err = cmp.Or(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	d := read(t,
		zipOf(t,
			map[string][]byte{
				record.Summary: []byte(summary), record.CPU: packed.Bytes(), record.Top: zeros, record.MetricsEnd: zeros,
				record.Block: zeros,
			}))
	for _, name := range []string{record.CPU, record.Top, record.MetricsEnd, record.Block} {
		if why := d.Missing[name]; !strings.Contains(why, "has more than") {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// A panic in a third-party decoder makes only the decoded file unreadable.
func TestDecoderPanics(t *testing.T) {
	text := zipOf(t, map[string][]byte{record.Summary: []byte(summary)})
	f, err := record.Open(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	m := readMoment(f)
	m.part(record.Summary, maxText, func([]byte) error { panic("index out of range") })
	if why := m.missing[record.Summary]; !strings.Contains(why, "index out of range") {
		t.Errorf("wrong reason why the file is missing: %q", why)
	}
}

func TestTimes(t *testing.T) {
	for _, times := range []string{`"began":"2026-11-21T23:57:56Z","ended":"2026-11-21T23:57:56Z"`,
		`"began":"2026-11-21T23:57:56Z","ended":"2025-11-21T23:57:56Z"`,
		`"began":"0001-01-01T00:00:00Z","ended":"9999-11-21T23:57:56Z"`} {
		text := zipOf(t, map[string][]byte{record.Summary: []byte(`{"format":1,` + times + `}`)})
		f, err := record.Open(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(f); err == nil {
			t.Errorf("a record with the times %s is read without an error", times)
		}
	}
}

// FuzzRead reads made-up records. Laws: no panic, scores from 0 to 1 in descending order, and the
// result encodes as JSON.
func FuzzRead(f *testing.F) {
	plain := smallProfile(f)
	f.Add([]byte(summary), []byte("process_cpu_seconds_total +Inf\nfreshet_limit_samples_total NaN\n"),
		[]byte(`[{"labels":[{"values":2000,"examples":["a"]}]}]`), plain, []byte("go 1.26 trace\x00\x00\x00"))
	f.Add([]byte(`{"format":1,"began":"2026-11-21T23:57:56Z","ended":"2026-11-21T23:58:01Z","gomaxprocs":-7,`+
		`"cpu_quotas":[{"cgroup":"\n","cores":-1,"periods":{"end":1e308},"throttled_periods":{"begin":-1e308,"end":1e308},`+
		`"throttled_seconds":{"begin":-1e308,"end":1e308}},{}],"runtime":{"/sched/goroutines:goroutines":{"begin":-1e308,`+
		`"end":1e308}},"spreads":{"/sched/latencies:seconds":{"p99":1e308}}}`),
		[]byte("freshet_dogstatsd_kernel_dropped_packets_total{listener=\"\\n\"} 1e308\n"),
		[]byte(`[null,{"over_limits":[{}],"malformed":[{},{"malformed_per_second":1e308,"share":1e308,`+
			`"example":"\u0000"}],"newest_series":[{"sender":{"process":null}}]}]`), []byte{}, []byte{})
	for _, list := range []string{
		`{"at":9223372036854775807,"memory_bytes":1,"tenants":[{"began":-9,"new_series":[18446744073709551615,9,9,9,9,0],` +
			`"new_names":1,"metrics":[{"metric":"m","new_series":[9,9,9,9,9,0],"labels":[{"label":"l"}]}],` +
			`"limits":[{"series":-1}]},{"new_series":[1]}]}`,
		`[{"id":"q1","queries":1,"running_seconds":1e308,"range_seconds":1e308,"step_seconds":-1,"example":"x",` +
			`"askers":[""]},{"active":-1}]`,
		`[{"requests_per_second":1e308,"samples_per_second":1e308},{"requests_per_second":50,"samples_per_second":0},` +
			`{"requests_per_second":-1}]`,
	} {
		f.Add([]byte(summary), []byte("process_resident_memory_bytes 1e308\nfreshet_query_waiting{tenant=\"a\"} +Inf\n"),
			[]byte(list), plain, []byte{})
	}
	f.Fuzz(func(t *testing.T, summary, metrics, top, plain, trace []byte) {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(plain)
		_ = w.Close()
		text := zipOf(t, map[string][]byte{
			record.Summary: summary, record.MetricsEnd: metrics, record.Top: top, record.Trace: trace, record.Growth: top,
			record.Queries: top, record.Requests: top,
			record.CPU: packed.Bytes(), record.Block: packed.Bytes(), record.Goroutines: packed.Bytes(),
			record.Allocs: packed.Bytes(), record.Mutex: packed.Bytes(),
		})
		f, err := record.Open(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			return
		}
		d, err := Read(f)
		if err != nil {
			return
		}
		if _, err := json.Marshal(d); err != nil {
			t.Error(err)
		}
		last := 1.0
		for _, c := range d.Causes {
			if !(c.Score >= 0 && c.Score <= last) || math.IsNaN(c.Score) {
				t.Errorf("%s has a score of %v, want at least 0 and at most the previous score, %v",
					c.Name, c.Score, last)
			}
			last = c.Score
		}
	})
}

// smallProfile returns an uncompressed profile of two stacks.
func smallProfile(f *testing.F) []byte {
	p := &profile.Profile{SampleType: []*profile.ValueType{
		{Type: "contentions", Unit: "count"}, {Type: "delay", Unit: "nanoseconds"},
	}}
	for i, name := range []string{"sync.(*Mutex).Lock", "runtime.copystack"} {
		id := uint64(i + 1)
		function := &profile.Function{ID: id, Name: name}
		location := &profile.Location{ID: id, Line: []profile.Line{{Function: function}}}
		p.Function, p.Location = append(p.Function, function), append(p.Location, location)
		p.Sample = append(p.Sample, &profile.Sample{Location: []*profile.Location{location}, Value: []int64{7, 3e9}})
	}
	var text bytes.Buffer
	if err := p.WriteUncompressed(&text); err != nil {
		f.Fatal(err)
	}
	return text.Bytes()
}

func readTops(t *testing.T, text string) (tops []top.View) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &tops); err != nil {
		t.Fatal(err)
	}
	return tops
}

// parseCauses reads names and scores of causes, such as "garbage 1 lock 0.5".
func parseCauses(t *testing.T, text string) (causes []Cause) {
	t.Helper()
	words := strings.Fields(text)
	for i := 0; i < len(words); i += 2 {
		var score float64
		if _, err := fmt.Sscan(words[i+1], &score); err != nil {
			t.Fatal(err)
		}
		causes = append(causes, Cause{Name: words[i], Score: score})
	}
	return causes
}

func causesText(causes []Cause) string {
	var words []string
	for _, c := range causes {
		words = append(words, fmt.Sprintf("%s %g", c.Name, c.Score))
	}
	return strings.Join(words, " ")
}
