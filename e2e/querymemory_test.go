package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
)

// TestQueryMemory checks that a query which needs too much memory fails, and nothing else does. It
// asks a server with 500 MiB for 12,000 series at 4,001 steps, which take 768 MB as samples and more
// as JSON. Such a query once ended the process. Writes continue, also while 24 smaller queries run.
func TestQueryMemory(t *testing.T) {
	p := startSmall(t)

	const series = 12_000
	at := time.Now()
	write := func(name string, n int) {
		t.Helper()
		var req prompb.WriteRequest
		for i := range n {
			req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
				Labels: []prompb.Label{
					{Name: "__name__", Value: name}, {Name: "instance", Value: fmt.Sprintf("host-%05d.example.com:9100", i)},
					{Name: "job", Value: "wide"},
				},
				Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: float64(i) / 7}},
			})
		}
		p.writeAll(t, &req)
	}
	write("wide", series)

	// Each series has one sample. All steps are within its look-back.
	ask := func(query string, steps int) (status int, text string) {
		params := url.Values{
			"query": {query}, "start": {fmt.Sprint(at.Unix() + 1)},
			"end": {fmt.Sprint(float64(at.Unix()+1) + float64(steps-1)*0.07)}, "step": {"0.07"},
		}
		r, err := http.PostForm("http://"+p.HTTP+"/api/v1/query_range", params)
		if err != nil {
			return 0, err.Error()
		}
		defer r.Body.Close()
		head, _ := io.ReadAll(io.LimitReader(r.Body, 2000))
		n, _ := io.Copy(io.Discard, r.Body)
		return r.StatusCode, fmt.Sprintf("%s... and %d bytes", head, n)
	}
	for _, query := range []string{"wide", "wide + 1", `label_replace(wide, "a", "b", "", "")`} {
		status, text := ask(query, 4001)
		if status != http.StatusUnprocessableEntity || !strings.Contains(text, `"errorType":"execution"`) ||
			!strings.Contains(text, "query.max_memory") {
			t.Fatalf("the query %s was answered with %d %s, want 422 and query.max_memory", query, status, text)
		}
	}
	write("after", 1)

	// Each of these queries fits into memory, but all together do not.
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			status, text := ask([]string{`wide{instance=~"host-0[0-3].*"}`, "sum(wide)", `wide{instance=~"host-00.*"}`}[i%3],
				[]int{80, 40, 300}[i%3])
			if status != http.StatusOK {
				t.Errorf("one of 24 queries was answered with %d %s, want 200", status, text)
			}
		})
	}
	for i := range 10 {
		write(fmt.Sprintf("beside_%d", i), 100)
	}
	all.Wait()
	if n, err := p.value(`count({__name__=~"after|beside_.*"})`); err != nil || n != 1001 {
		t.Errorf("the server has %v of the 1001 series that were written during the queries; error %v", n, err)
	}
	p.staysSmall(t)
}

// smallServer is the memory of the servers of these tests, in bytes.
const smallServer = 500 << 20

func startSmall(t *testing.T) *process {
	t.Helper()
	dir := dataDir(t)
	cmd := exec.Command(freshet, "serve", "--data-dir", dir, "--http-listen", "127.0.0.1:0",
		"--distributor-otlp-grpc-listen", "127.0.0.1:0",
		"--dogstatsd-udp", "127.0.0.1:0", "--dogstatsd-unixgram", filepath.Join(dir, "dgram.sock"), "--dogstatsd-unix", "",
		"--query-max-concurrency", "1")
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+strconv.Itoa(smallServer))
	return launch(t, dir, cmd)
}

// staysSmall checks the largest resident memory of the process so far.
func (p *process) staysSmall(t *testing.T) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no VmHWM in %s", status)
	}
	peak, _ := strconv.ParseInt(string(found[1]), 10, 64)
	if t.Logf("the resident memory was at most %d MiB", peak>>10); peak<<10 > smallServer {
		t.Errorf("the resident memory was %d MiB, more than the limit of %d", peak>>10, smallServer>>20)
	}
}

// TestQueryResultMemory checks that a query fails if its result needs too much memory, even if its input
// is small, and that no other query fails. The input is 10,000 series of 25 samples each, at 5,000
// steps, on a server with 500 MiB. The engine reserves memory for all steps of each series of a result,
// so the first of these queries once took 1.2 GB.
func TestQueryResultMemory(t *testing.T) {
	p := startSmall(t)
	const series, samples = 10_000, 25
	at := time.Now()
	for k := range samples {
		var req prompb.WriteRequest
		for i := range series {
			req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
				Labels:  []prompb.Label{{Name: "__name__", Value: "wide"}, {Name: "instance", Value: fmt.Sprintf("h%05d", i)}},
				Samples: []prompb.Sample{{Timestamp: at.UnixMilli() - int64(samples-k)*60_000, Value: float64(k*series + i)}},
			})
		}
		p.writeAll(t, &req)
	}
	type answer struct {
		status int
		text   string
	}
	for i, query := range []string{`count(count_values("v", wide))`, `count(count_values("v", wide))`, "count(wide + 1)"} {
		answered := make(chan answer)
		go func() {
			params := url.Values{
				"query": {query}, "start": {fmt.Sprint(at.Unix() - 5000*60 + 200)}, "end": {fmt.Sprint(at.Unix() + 200)},
				"step": {"60"},
			}
			r, err := http.PostForm("http://"+p.HTTP+"/api/v1/query_range", params)
			if err != nil {
				answered <- answer{0, err.Error()}
				return
			}
			defer r.Body.Close()
			head, _ := io.ReadAll(io.LimitReader(r.Body, 2000))
			answered <- answer{r.StatusCode, string(head)}
		}()
		for n, done := 0, false; !done; n++ {
			p.writeAll(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
				Labels: []prompb.Label{
					{Name: "__name__", Value: "beside"}, {Name: "query", Value: strconv.Itoa(i)}, {Name: "n", Value: strconv.Itoa(n)},
				},
				Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: 1}},
			}}})
			select {
			case a := <-answered:
				done = true
				if a.status != http.StatusUnprocessableEntity || !strings.Contains(a.text, `"errorType":"execution"`) ||
					!strings.Contains(a.text, "query.max_memory") {
					t.Errorf("the query %s was answered with %d %s, want 422 and query.max_memory", query, a.status, a.text)
				}
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	// Other queries are still answered.
	if n, err := p.value("count(wide)"); err != nil || n != series {
		t.Errorf("after the queries the server has %v of %d series; error %v", n, series, err)
	}
	p.staysSmall(t)
}

func (p *process) writeAll(t *testing.T, req *prompb.WriteRequest) {
	t.Helper()
	body, err := req.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if status, text, _, err := p.write(remoteWriteV1, snappy.Encode(nil, body)); err != nil ||
		status != http.StatusNoContent {
		t.Fatalf("a write of %d series: got %d %s, error %v", len(req.Timeseries), status, text, err)
	}
}
