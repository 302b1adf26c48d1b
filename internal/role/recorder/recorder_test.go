package recorder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/pprof/profile"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// newRecorder returns a recorder that makes a record in almost no time.
func newRecorder(t *testing.T, c settings.Recorder, log io.Writer) *Recorder {
	t.Helper()
	reg := prometheus.NewRegistry()
	r := New(Options{
		Config: c, Dir: filepath.Join(t.TempDir(), "records"), Gatherer: reg, Build: "v1", Registry: reg,
		Top:     func(context.Context, time.Duration) (any, error) { return []string{"busiest senders"}, nil },
		Broken:  func() []record.BrokenStore { return []record.BrokenStore{{Tenant: "b", Store: "10s"}} },
		Growing: func() record.Growing { return record.Growing{MemoryOf: "the cgroup"} },
		Queries: func() []querycost.Row { return []querycost.Row{{Tenant: "b", Query: "up"}} },
		Cluster: func(context.Context) any { return record.Cluster{Leader: "b"} }, Node: "a",
		Sent:   func() []record.Sent { return []record.Sent{{Tenant: "b", From: "10.0.0.7"}} },
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	r.duration = time.Millisecond
	return r
}

func run(t *testing.T, r *Recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func read(t *testing.T, r *Recorder, id string) *record.File {
	t.Helper()
	f, err := r.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	opened, err := record.Open(f, f.Size())
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

func TestARecordHasEverything(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	stop := run(t, r)
	defer stop()
	made, err := r.Record(t.Context(), "to see what is in it")
	if err != nil {
		t.Fatal(err)
	}
	f := read(t, r, made.ID)
	if f.Reason != "to see what is in it" || f.Build != "v1" || f.GOMAXPROCS < 1 || len(f.Missing) != 0 ||
		f.Seconds() <= 0 {
		t.Errorf("%+v", f.Record)
	}
	if v := f.Runtime["/gc/heap/allocs:bytes"]; v.Begin <= 0 || v.Grown() <= 0 {
		t.Errorf("allocated: %+v", v)
	}
	if _, there := f.Spreads["/sched/latencies:seconds"]; !there {
		t.Error("the record has no latencies of the scheduler")
	}
	for _, name := range []string{record.CPU, record.Goroutines, record.Heap, record.Allocs, record.Mutex, record.Block} {
		text, err := f.Read(name)
		if err == nil {
			_, err = profile.ParseData(text)
		}
		if err != nil && !strings.Contains(err.Error(), "no sample") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, has := range map[string]string{
		record.Trace: "go 1.", record.MetricsBegin: "freshet_recorder_records_total 0",
		record.MetricsEnd: "freshet_recorder_records_total 0",
		record.Top:        `["busiest senders"]`, record.Stores: `[{"tenant":"b","store":"10s",`,
		record.Growth: `"memory_of":"the cgroup"`, record.Queries: `"query":"up"`, record.Requests: `"from":"10.0.0.7"`,
		record.Nodes: `"leader":"b"`,
	} {
		if text, err := f.Read(name); err != nil || !bytes.Contains(text, []byte(has)) {
			t.Errorf("%s: %.200q, %v", name, text, err)
		}
	}
	if n := testutil.ToFloat64(r.made); n != 1 {
		t.Errorf("%v records are counted as made, want 1", n)
	}
}

// Top counts senders from its first call on. A single call would cover only a second or two. So a record
// calls Top at its beginning, which starts the counting, and again at its end, and keeps the second
// result.
func TestARecordLooksAtWhoSendsAllTheTime(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	var leases []time.Duration
	r.Top = func(_ context.Context, lease time.Duration) (any, error) {
		leases = append(leases, lease)
		return len(leases), nil
	}
	stop := run(t, r)
	defer stop()
	made, err := r.Record(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := read(t, r, made.ID).Read(record.Top); err != nil || string(text) != "2" {
		t.Errorf("the record has the result of call %s of Top, error %v, want that of call 2", text, err)
	}
	if want := []time.Duration{r.duration + topWait, topWait}; !slices.Equal(leases, want) {
		t.Errorf("Top counts for %v, want %v: through the profiles, and not for long after the record", leases, want)
	}
}

// counting is a file system with a cgroup. Each time cpu.stat is opened, it shows one more period, in
// which the cgroup was throttled.
type counting struct {
	files fstest.MapFS
	looks int
}

func (c *counting) Open(name string) (fs.File, error) {
	if name == "sys/fs/cgroup/unit/cpu.stat" {
		c.looks++
		c.files[name] = &fstest.MapFile{Data: fmt.Appendf(nil, "nr_periods %d\nnr_throttled %d\nthrottled_usec %d\n",
			10+c.looks, c.looks, 500*c.looks)}
	}
	return c.files.Open(name)
}

// A record shows how much the cgroups were throttled from the record's beginning to its end.
func TestARecordHasCPUQuotas(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	r.root = &counting{files: fstest.MapFS{
		"proc/self/cgroup":           {Data: []byte("0::/unit\n")},
		"sys/fs/cgroup/unit/cpu.max": {Data: []byte("20000 100000\n")},
	}}
	stop := run(t, r)
	defer stop()
	made, err := r.Record(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	want := []record.CPUQuota{{
		Cgroup: "/sys/fs/cgroup/unit", File: "/sys/fs/cgroup/unit/cpu.max", Cores: 0.2,
		Periods: record.Values{Begin: 11, End: 12}, Throttled: record.Values{Begin: 1, End: 2},
		Stood: record.Values{Begin: 0.0005, End: 0.001},
	}}
	if got := read(t, r, made.ID).CPUQuotas; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// If many batches exceed their budget in the same second, the recorder makes only one
// record.
func TestOneRecordOfABadTime(t *testing.T) {
	var log bytes.Buffer
	r := newRecorder(t, settings.DefaultRecorder(), &log)
	stop := run(t, r)
	for range 3 {
		r.over <- overBudget{stage.Queue, 300 * time.Millisecond, 250 * time.Millisecond}
	}
	r.over <- overBudget{} // received only after the recorder has handled all three values above
	stop()
	all, err := r.List()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if got := all[0]; got.Reason != "stage queue took 300ms, its budget is 250ms" || got.Stage != "queue" ||
		got.Spent != 0.3 || got.Budget != 0.25 || got.Bytes == 0 || !strings.HasSuffix(got.ID, "-queue") {
		t.Errorf("%+v", got)
	}
	if n := testutil.ToFloat64(r.skipped); n < 2 {
		t.Errorf("%v records are counted as skipped, want at least 2", n)
	}
	if !strings.Contains(log.String(), "record="+all[0].ID) {
		t.Errorf("the log lacks the id of the record: %s", &log)
	}
}

func TestOverNeverWaits(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard) // not running
	for range 10 {
		r.Over(stage.Queue, time.Second, time.Millisecond)
	}
	if n := testutil.ToFloat64(r.skipped); n != 9 {
		t.Errorf("%v records are counted as skipped, want 9", n)
	}
	off := newRecorder(t, settings.Recorder{}, io.Discard)
	off.Over(stage.Queue, time.Second, time.Millisecond)
	if len(off.over) != 0 {
		t.Error("a record is made although self.recorder.budgets is off")
	}
}

func TestTheOldestMakeRoom(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*settings.Recorder, int64)
		left int
	}{
		{"by number", func(c *settings.Recorder, _ int64) { c.Records = 3 }, 3},
		{"by bytes", func(c *settings.Recorder, each int64) { c.Bytes = 2*conf.Bytes(each) + conf.Bytes(each)/2 }, 2},
		{"the bound in bytes never removes the last record", func(c *settings.Recorder, _ int64) { c.Bytes = 1 }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
			c.set(&r.Config, 100)
			if err := os.MkdirAll(r.Dir, 0o750); err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(r.Dir, "notes.zip") // a user's own file
			if err := os.WriteFile(other, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				if err := r.keep(fmt.Sprintf("20261121T00000%d.000-asked", i), make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
			}
			files, err := r.files()
			if err != nil || len(files) != c.left || files[0].id != "20261121T000004.000-asked" {
				t.Errorf("%v %v", files, err)
			}
			if _, err := os.Stat(other); err != nil {
				t.Error(err)
			}
		})
	}
}

// A new record is kept even if the clock was set back, so that older records look newer.
func TestTheNewestIsKeptWhateverItsName(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	r.Config.Records = 2
	for _, id := range []string{"20361121T000000.000-asked", "20361121T000001.000-asked", "20261121T000000.000-asked"} {
		if err := r.keep(id, nil); err != nil {
			t.Fatal(err)
		}
	}
	files, err := r.files()
	if err != nil || len(files) != 2 || files[1].id != "20261121T000000.000-asked" {
		t.Errorf("%v %v", files, err)
	}
}

// An id comes from outside and becomes part of a path, so strange ids are refused.
func TestStrangeIDs(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	for _, id := range []string{"", "..", "../../etc/passwd", "20261121T000000.000-asked",
		"20261121T000000.000-asked/../x", "20261121T000000.000-ASKED\x00"} {
		if _, err := r.Open(id); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestARecordThatIsDamagedIsListed(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	if err := r.keep("20261121T000000.000-asked", []byte("no zip")); err != nil {
		t.Fatal(err)
	}
	all, err := r.List()
	if err != nil || len(all) != 1 || all[0].ID != "20261121T000000.000-asked" ||
		!strings.Contains(all[0].Error, "not a valid zip") {
		text, _ := json.Marshal(all)
		t.Errorf("%s %v", text, err)
	}
}

func TestAskingAStoppedRecorder(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	run(t, r)()
	if _, err := r.Record(t.Context(), "x"); !errors.Is(err, errEnded) {
		t.Error(err)
	}
}
