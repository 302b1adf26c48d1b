package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

const (
	remoteWriteV1 = "application/x-protobuf;proto=prometheus.WriteRequest"
	remoteWriteV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

// message is a request of remote write, of version 1 or 2.
type message interface{ Marshal() ([]byte, error) }

// write sends a request of remote write. An error means that there was no answer.
func (p *process) write(kind string, body []byte) (status int, text string, header http.Header, err error) {
	return p.writeWithin(30*time.Second, kind, body)
}

// writeWithin is like write, but has a time limit of its own.
func (p *process) writeWithin(
	limit time.Duration, kind string, body []byte,
) (status int, text string, header http.Header, err error) {
	r, err := http.NewRequest(http.MethodPost, "http://"+p.HTTP+"/api/v1/write", bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Content-Encoding", "snappy")
	client := http.Client{Timeout: limit}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(said), answer.Header, err
}

func pack(t *testing.T, m message) []byte {
	t.Helper()
	body, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return snappy.Encode(nil, body)
}

// requestV2 returns a request with one sample of value v at time ms for each name.
func requestV2(ms int64, v float64, names ...string) *writev2.Request {
	symbols := writev2.NewSymbolTable()
	m := &writev2.Request{}
	for _, name := range names {
		m.Timeseries = append(m.Timeseries, writev2.TimeSeries{
			LabelsRefs: []uint32{
				symbols.Symbolize("__name__"), symbols.Symbolize(name), symbols.Symbolize("job"), symbols.Symbolize("e2e"),
			},
			Samples: []writev2.Sample{{Timestamp: ms, Value: v}},
		})
	}
	m.Symbols = symbols.Symbols()
	return m
}

// TestBadRequests checks that each bad request gets the right status and a helpful text, and is
// counted. The good samples of the request and of later requests are stored.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--distributor-max-series", "20", "--distributor-max-body", "100KiB",
		"--distributor-max-label-value", "50")
	now := time.Now().UnixMilli()
	series := func(labels ...string) []prompb.Label {
		var ls []prompb.Label
		for i := 0; i < len(labels); i += 2 {
			ls = append(ls, prompb.Label{Name: labels[i], Value: labels[i+1]})
		}
		return ls
	}
	with := func(ls []prompb.Label, at int64, v float64) *prompb.WriteRequest { // together with a good series
		return &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
			{Labels: ls, Samples: []prompb.Sample{{Timestamp: at, Value: v}}},
			{Labels: series("__name__", "good"), Samples: []prompb.Sample{{Timestamp: now, Value: 1}}},
		}}
	}
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprint("many", i))
	}
	for _, c := range []struct {
		why, kind string
		body      []byte
		status    int
		text      string
		written   string
		counter   string
	}{
		{"a valid request", remoteWriteV1, pack(t, with(series("__name__", "first"), now, 1)), 204, "", "2",
			`freshet_distributor_written_samples_total`},
		{"no name", remoteWriteV1, pack(t, with(series("job", "a"), now, 1)), 400, `{job="a"}: the series has no name`, "1",
			`freshet_distributor_refused_total{reason="bad_labels"}`},
		{"a name twice", remoteWriteV1, pack(t, with(series("__name__", "a", "b", "1", "b", "2"), now, 1)), 400,
			"b occurs twice", "1", `freshet_distributor_refused_total{reason="bad_labels"}`},
		{"not UTF-8", remoteWriteV1, pack(t, with(series("__name__", "a", "b", "\xff"), now, 1)), 400, "is not UTF-8", "1",
			`freshet_distributor_refused_total{reason="bad_labels"}`},
		{"another value", remoteWriteV1, pack(t, with(series("__name__", "first"), now, 2)), 400,
			"the stored value is 1, not 2", "1", `freshet_distributor_refused_total{reason="duplicate"}`},
		{"a year ahead", remoteWriteV1, pack(t, with(series("__name__", "ahead"), now+365*24*3600_000, 1)), 400,
			"ahead of the clock", "1", `freshet_distributor_refused_total{reason="too_far_ahead"}`},
		{"a day ago", remoteWriteV1, pack(t, with(series("__name__", "first"), now-24*3600_000, 1)), 400,
			"store.out_of_order (30m", "1", `freshet_distributor_refused_total{reason="too_old"}`},
		{"a long value", remoteWriteV1, pack(t, with(series("__name__", "a", "b", strings.Repeat("x", 51)), now, 1)), 429,
			"distributor.max_label_value allows 50", "1", `freshet_distributor_refused_total{reason="too_long_label"}`},
		{"too many series", remoteWriteV2, pack(t, requestV2(now, 1, many...)), 429, `__name__="many18"`, "18",
			`freshet_distributor_refused_total{reason="too_many_series"}`},
		{"another type", "text/plain", pack(t, requestV2(now, 1, "a")), 415, "is not supported", "0",
			`freshet_receive_unread_requests_total{reason="content_type"}`},
		{"not snappy", remoteWriteV2, []byte("{}"), 400, "not compressed with snappy", "0",
			`freshet_receive_unread_requests_total{reason="malformed"}`},
		{"not protobuf", remoteWriteV2, snappy.Encode(nil, []byte("{}")), 400, "byte 0", "0",
			`freshet_receive_unread_requests_total{reason="malformed"}`},
		{"a reference to nothing", remoteWriteV2,
			pack(t, &writev2.Request{Symbols: []string{""}, Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1, 2}}}}),
			400, "refers to symbol 1", "0", `freshet_receive_unread_requests_total{reason="malformed"}`},
		{"4 GiB in five bytes", remoteWriteV2, []byte("\xff\xff\xff\xff\x0f"), 413, "the limit is 102400", "0",
			`freshet_receive_unread_requests_total{reason="too_large"}`},
		{"a bomb", remoteWriteV2, snappy.Encode(nil, make([]byte, 1<<20)), 413, "the limit is 102400", "0",
			`freshet_receive_unread_requests_total{reason="too_large"}`},
	} {
		before, err := p.metric(c.counter)
		if err != nil {
			t.Fatal(err)
		}
		status, text, header, err := p.write(c.kind, c.body)
		if err != nil {
			t.Fatal(err)
		}
		if written := header.Get("X-Prometheus-Remote-Write-Samples-Written"); status != c.status ||
			!strings.Contains(text, c.text) || written != c.written {
			t.Errorf("%s: got status %d and %s samples written, want %d and %s; want the text %q in: %s",
				c.why, status, written, c.status, c.written, c.text, text)
		}
		if after, err := p.metric(c.counter); err != nil || after <= before {
			t.Errorf("%s: %s did not grow: it was %v and is %v; error %v", c.why, c.counter, before, after, err)
		}
	}
	if v, err := p.value(`count({__name__=~"first|good|many.*"})`); err != nil || v != 20 {
		t.Errorf("there are %v series, want 20; %v", v, err)
	}
	if v, err := p.value("first"); err != nil || v != 1 {
		t.Errorf("the series `first` is %v, want 1; error %v", v, err)
	}
}

// metric returns one of the process's own metrics, by its name and labels as in /metrics.
func (p *process) metric(series string) (v float64, err error) {
	body, err := p.get("/metrics", nil)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			_, err := fmt.Sscan(rest, &v)
			return v, err
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", series)
}

// acknowledged has the times of the samples that the server acknowledged in a kill test. Each series has
// one sample at each of these times, with the time as its value.
type acknowledged struct {
	mu    sync.Mutex
	times []int64 // Unix ms
}

const killSeries = 40

// TestAcknowledgedSamplesSurvive checks that kill -9, SIGTERM and SIGSTOP neither lose, repeat nor
// change a sample that was answered with 204. Samples come by versions 1 and 2, in order and late.
// Some kills hit a restart in place, before which the heads of stores are saved while the senders go on.
//
// 4 rounds in CI, 50 in `make soak`.
func TestAcknowledgedSamplesSurvive(t *testing.T) {
	t.Parallel()
	rounds, stopped := 4, 2*time.Second
	if soak {
		rounds, stopped = 50, 10*time.Second
	}
	var names []string
	for i := range killSeries {
		names = append(names, fmt.Sprint("kill", i))
	}
	p := start(t, dataDir(t))
	var promised acknowledged
	var clock atomic.Int64
	clock.Store(time.Now().Add(-20 * time.Minute).UnixMilli())
	random := rand.New(rand.NewPCG(3, 3))
	for round := range rounds {
		var senders sync.WaitGroup
		for sender := range 4 {
			senders.Go(func() {
				for {
					at := clock.Add(1)
					var m message = requestV2(at, float64(at), names...)
					kind := remoteWriteV2
					if sender%2 == 0 {
						kind, m = remoteWriteV1, v1Of(m.(*writev2.Request))
					}
					status, text, _, err := p.write(kind, pack(t, m))
					switch {
					case err != nil:
						return // the server was killed
					case round%4 == 3 && status == http.StatusServiceUnavailable:
						continue // it restarts in place
					case status != http.StatusNoContent:
						t.Errorf("a sender was answered with %d %s, want 204", status, text)
						return
					}
					promised.mu.Lock()
					promised.times = append(promised.times, at)
					promised.mu.Unlock()
				}
			})
		}
		reach(time.Now().Add(500*time.Millisecond + time.Duration(random.Int64N(int64(time.Second)))))
		if round%4 >= 2 {
			p.growLog(t, random, clock.Add(1))
		}
		if round%4 == 1 {
			p.signal(t, syscall.SIGSTOP)
			reach(time.Now().Add(stopped))
			p.signal(t, syscall.SIGCONT)
			reach(time.Now().Add(300 * time.Millisecond))
		}
		switch round % 4 {
		case 2:
			p.terminate(t)
		case 3:
			p.signal(t, syscall.SIGUSR2)
			reach(time.Now().Add(time.Duration(random.Int64N(int64(2 * time.Second)))))
			p.kill(t)
		default:
			p.kill(t)
		}
		senders.Wait()
		_, unsaved := os.Stat(filepath.Join(p.dataDir, "tsdb/default/raw/head.note"))
		p = start(t, p.dataDir)
		unused, err := p.ownMetric("freshet_store_saved_heads_unused_total")
		t.Logf("round %d: %d requests of %d samples were acknowledged so far", round, len(promised.times), killSeries)
		t.Logf("there was a saved head: %v; %v were not used, error %v", unsaved == nil, unused, err)
		p.checkPromised(t, &promised)
	}
}

// growLog writes so many bytes to the log of the store that the server saves the head.
func (p *process) growLog(t *testing.T, random *rand.Rand, at int64) {
	t.Helper()
	const requests, perRequest, words = 9, 500, 60
	for range requests {
		var names []string
		for range perRequest {
			name := "long"
			for range words { // which no compression makes shorter
				name += fmt.Sprintf("_%016x", random.Uint64())
			}
			names = append(names, name)
		}
		status, text, _, err := p.write(remoteWriteV2, pack(t, requestV2(at, 1, names...)))
		if err != nil || status != http.StatusNoContent {
			t.Fatalf("new series were answered with %d %s, want 204; error %v", status, text, err)
		}
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedWAL checks that a server with a damaged WAL starts, logs what it could not read, and
// returns no value that was never sent. A torn last record costs only that record.
func TestDamagedWAL(t *testing.T) {
	t.Parallel()
	const requests = 100
	for why, c := range map[string]struct {
		damage func(content []byte) []byte
		least  int // how many requests must survive
	}{
		"torn last record": {func(content []byte) []byte { return content[:len(content)-7] }, requests - 1},
		"flipped bit": {func(content []byte) []byte {
			content[len(content)/2] ^= 4
			return content
		}, requests / 4},
		"garbage at the end": {func(content []byte) []byte { return append(content, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4) },
			requests},
		"nothing left": {func([]byte) []byte { return nil }, 0},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			p := start(t, dataDir(t))
			base := time.Now().Add(-time.Minute).UnixMilli()
			for i := range int64(requests) {
				if status, text, _, err := p.write(remoteWriteV2,
					pack(t, requestV2(base+i, float64(base+i), "wal1", "wal2"))); err != nil || status != http.StatusNoContent {
					t.Fatalf("a write before the damage was answered with %d %s, want 204; error %v", status, text, err)
				}
			}
			p.kill(t)
			segments, err := filepath.Glob(filepath.Join(p.dataDir, "tsdb/default/raw/wal/0*"))
			if err != nil || len(segments) != 1 {
				t.Fatalf("the WAL has the segments %v, want one; error %v", segments, err)
			}
			content, err := os.ReadFile(segments[0])
			if err == nil {
				err = os.WriteFile(segments[0], c.damage(content), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			p = start(t, p.dataDir)
			results, err := p.query(`{__name__=~"wal.*"}[30m]`)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				for _, v := range r.Values {
					if at := int64(v.T*1000 + .5); at != int64(v.V) || at < base || at >= base+requests {
						t.Errorf("%v has a value that was never sent: %v", r.Metric, v)
					}
				}
				if len(r.Values) < c.least {
					t.Errorf("%v has %d samples left, want at least %d", r.Metric, len(r.Values), c.least)
				}
			}
			if len(results) != 2 && c.least > 0 {
				t.Errorf("there are %d series, want 2", len(results))
			}
			if c.least < requests && c.least > 0 {
				p.says(t, "corruption", "the repair removed everything behind the damage")
				cut, err := p.ownMetric("freshet_store_wal_cut_bytes_total")
				if err != nil || cut < 1 || cut > float64(len(content)) {
					t.Errorf("the metric says that %v bytes were cut off, want 1 to %d; error %v", cut, len(content), err)
				}
			}
			if status, text, _, err := p.write(remoteWriteV2,
				pack(t, requestV2(base+requests, float64(base+requests), "wal1", "wal2", "wal3"))); err != nil ||
				status != http.StatusNoContent {
				t.Errorf("a write after the damage was answered with %d %s, want 204; error %v", status, text, err)
			}
		})
	}
}

func v1Of(m *writev2.Request) *prompb.WriteRequest {
	var out prompb.WriteRequest
	for _, s := range m.Timeseries {
		ts := prompb.TimeSeries{Samples: []prompb.Sample{{Timestamp: s.Samples[0].Timestamp, Value: s.Samples[0].Value}}}
		for i := 0; i < len(s.LabelsRefs); i += 2 {
			ts.Labels = append(ts.Labels, prompb.Label{Name: m.Symbols[s.LabelsRefs[i]], Value: m.Symbols[s.LabelsRefs[i+1]]})
		}
		out.Timeseries = append(out.Timeseries, ts)
	}
	return &out
}

func (p *process) checkPromised(t *testing.T, promised *acknowledged) {
	t.Helper()
	for i := range killSeries { // one by one, since together they have millions of samples
		results, err := p.query(fmt.Sprintf("kill%d[2h]", i))
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != 1 {
			t.Fatalf("the query for kill%[2]d found %[1]d series, want 1", len(results), i)
		}
		r := results[0]
		found := map[int64]float64{}
		for _, v := range r.Values {
			at := int64(v.T*1000 + .5)
			if _, twice := found[at]; twice {
				t.Fatalf("%v has two samples at %d, want one", r.Metric, at)
			}
			found[at] = v.V
		}
		for _, at := range promised.times {
			if v, ok := found[at]; !ok || v != float64(at) {
				t.Fatalf("%v: the acknowledged sample at %d has the value %v, want %[2]d (sample found: %[4]v)",
					r.Metric, at, v, ok)
			}
		}
	}
}

// TestFullDiskAndRemoteWrite checks that requests on a full disk are answered with 503 and Retry-After,
// that the log has the cause, and that writes succeed again seconds after there is space. Acknowledged
// samples are not lost, even after a restart.
func TestFullDiskAndRemoteWrite(t *testing.T) {
	t.Parallel()
	d := newSmallDisk(t)
	p := start(t, d.dir)
	at := time.Now().Add(-time.Minute).UnixMilli() // more than one request may come per millisecond
	send := func() (int, string, string) {
		t.Helper()
		at++
		status, text, header, err := p.write(remoteWriteV2, pack(t, requestV2(at, float64(at), "full")))
		if err != nil {
			t.Fatal(err)
		}
		return status, text, header.Get("Retry-After")
	}
	var promised []int64
	if status, text, _ := send(); status != http.StatusNoContent {
		t.Fatalf("a write before the disk is full was answered with %d %s, want 204", status, text)
	}
	promised = append(promised, at)
	d.fill(t, p)
	says := []string{"nothing was written"}
	if os.Getenv("FRESHET_GROUP_OF_ONE") != "" { // a failed write to the log may have written a part
		says = append(says, "nothing counts twice")
	}
	refused := 0
	for range 200 { // some requests still fit into the last page of a file
		status, text, after := send()
		switch {
		case status == http.StatusNoContent:
			promised = append(promised, at)
		case status != http.StatusServiceUnavailable || after == "" ||
			!slices.ContainsFunc(says, func(one string) bool { return strings.Contains(text, one) }):
			t.Fatalf("a write on a full disk was answered with %d, Retry-After %q: %s; want 503, a time and the cause",
				status, after, text)
		default:
			refused++
		}
	}
	if refused == 0 {
		t.Error("no request was refused on a full disk")
	}
	p.says(t, "requests cannot be written; senders are asked to send them again")
	d.free(t, p)
	eventually(t, 30*time.Second, "requests are written again", func() error {
		if status, text, _ := send(); status != http.StatusNoContent {
			return fmt.Errorf("a write: %d %s", status, text)
		}
		promised = append(promised, at)
		return nil
	})
	for range 2 { // in the running server, and after kill -9
		results, err := p.query("full[30m]")
		if err != nil || len(results) != 1 {
			t.Fatalf("got the series %v, want one; error %v", results, err)
		}
		found := map[int64]bool{}
		for _, v := range results[0].Values {
			if int64(v.T*1000+.5) != int64(v.V) {
				t.Errorf("the server has a value that was never sent: %v", v)
			}
			found[int64(v.V)] = true
		}
		for _, at := range promised {
			if !found[at] {
				t.Errorf("the server lost number %[2]d of %[1]d acknowledged samples", len(promised), slices.Index(promised, at))
			}
		}
		p.kill(t)
		p = start(t, d.dir)
	}
}
