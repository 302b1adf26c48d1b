package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// telegrafBinary is where `make clients` puts a telegraf.
const telegrafBinary = "../.cache/telegraf"

// telegrafPage is what telegraf is told to collect, of each type of metric one, in
// Prometheus' text format with times. The parts of a line are the series as readings spell
// it, the value, and the time. Values that are not finite and a label that sorts before
// __name__ are in it to make trouble.
const telegrafPage = `
# TYPE app_requests_total counter
app_requests_total{Zone="größer",code="200",job="app"} %[1]v @
app_requests_total{Zone="größer",code="500",job="app"} %[2]v @
# TYPE app_load gauge
app_load{job="app"} %[3]v @
# TYPE app_limit gauge
app_limit{job="app"} +Inf @
# TYPE app_untyped untyped
app_untyped{job="app"} %[2]v @
# TYPE app_latency_seconds histogram
app_latency_seconds_bucket{job="app",le="0.1",path="/"} %[1]v @
app_latency_seconds_bucket{job="app",le="1",path="/"} %[4]v @
app_latency_seconds_bucket{job="app",le="+Inf",path="/"} %[5]v @
app_latency_seconds_sum{job="app",path="/"} %[2]v @
app_latency_seconds_count{job="app",path="/"} %[5]v @
# TYPE app_wait_seconds summary
app_wait_seconds{job="app",quantile="0.5"} %[2]v @
app_wait_seconds{job="app",quantile="0.99"} NaN @
app_wait_seconds_sum{job="app"} %[2]v @
app_wait_seconds_count{job="app"} %[1]v @
`

// telegrafMetrics is how many metrics a page is to telegraf: one for each counter, gauge,
// bucket and quantile, and one for each count with its sum.
const telegrafMetrics = 12

// telegraf is a telegraf that runs, and what it was told to collect.
type telegraf struct {
	*output
	client *http.Client
	pages  int
	last   int64               // Unix milliseconds, of the last page
	all    map[string][]string // of each series all samples, as readings has them
}

// startTelegraf starts one with an output.
func startTelegraf(t *testing.T, outputs string) *telegraf {
	t.Helper()
	dir := dataDir(t)
	config, socket := filepath.Join(dir, "telegraf.conf"), filepath.Join(dir, "socket")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
[agent]
  flush_interval = "500ms"
  omit_hostname = true
  metric_buffer_limit = 100000
[[inputs.http_listener_v2]]
  service_address = "unix://%s"
  data_format = "prometheus"
%s`, socket, outputs), 0o600); err != nil {
		t.Fatal(err)
	}
	sender := &telegraf{output: &output{}, all: map[string][]string{}, client: &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}}
	cmd := exec.Command(telegrafBinary, "--config", config)
	cmd.Stdout, cmd.Stderr = sender, sender
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; `make clients` builds it", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("telegraf printed:\n%s", sender.output)
		}
	})
	eventually(t, startLimit, "telegraf listens", func() error {
		r, err := sender.client.Get("http://telegraf/")
		if err == nil {
			_ = r.Body.Close() // a 404
		}
		return err
	})
	return sender
}

// collect gives it a page that is another one each time.
func (s *telegraf) collect(t *testing.T) {
	t.Helper()
	s.pages++
	s.last = max(s.last+1, time.Now().UnixMilli())
	x := float64(s.pages)
	page := strings.ReplaceAll(fmt.Sprintf(telegrafPage, x, x/10, float64(s.pages%7)-3, 2*x, 3*x), "@", fmt.Sprint(s.last))
	r, err := s.client.Post("http://telegraf/telegraf", "text/plain", strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusNoContent {
		t.Fatalf("telegraf says %s", r.Status)
	}
	for line := range strings.Lines(page) {
		if part := strings.Fields(line); len(part) == 3 {
			s.all[part[0]] = append(s.all[part[0]], part[2]+" "+part[1])
		}
	}
}

// readings returns the samples of the pages' series that p has, each as "milliseconds
// value", by the text of the series.
func (p *process) readings() (map[string][]string, error) {
	results, err := p.query(`{__name__=~"app_.+"}[10m]`)
	all := map[string][]string{}
	for _, r := range results {
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(r.Metric)) {
			if name != "__name__" {
				pairs = append(pairs, fmt.Sprintf("%s=%q", name, r.Metric[name]))
			}
		}
		series := fmt.Sprintf("%s{%s}", r.Metric["__name__"], strings.Join(pairs, ","))
		for _, v := range r.Values {
			all[series] = append(all[series], fmt.Sprintf("%.0f %v", v.T*1000, v.V))
		}
	}
	return all, err
}

// TestTelegrafSends: a telegraf sends by remote write, set as docs/remote-write.md says, and
// by OTLP. Freshet is stopped for a while; in the end it has every sample that telegraf
// collected and no other.
//
// Of each series telegraf's remote write sends the newest sample in a batch only, so a batch
// has to be a page. It is one if telegraf flushes between pages, never within one, or in
// vain: so all pages but the first and the last are collected while nobody takes them.
func TestTelegrafSends(t *testing.T) {
	t.Parallel() // it mostly waits
	outage := 3 * time.Second
	if soak {
		outage = 3 * time.Minute
	}
	for name, outputs := range map[string]func(*process) string{
		"remote write": func(p *process) string {
			return fmt.Sprintf(`
[[outputs.http]]
  url = "http://%s/api/v1/write"
  data_format = "prometheusremotewrite"
  metric_batch_size = %d
  non_retryable_statuscodes = [400, 413, 415, 429]
  [outputs.http.headers]
    Content-Type = "application/x-protobuf"
    Content-Encoding = "snappy"
    X-Prometheus-Remote-Write-Version = "0.1.0"
`, p.HTTP, telegrafMetrics)
		},
		"OTLP": func(p *process) string {
			return fmt.Sprintf(`
[[outputs.opentelemetry]]
  service_address = %q
  [outputs.opentelemetry.attributes]
    "service.name" = "app"
`, p.OTLPGRPC)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, dataDir(t))
			sender := startTelegraf(t, outputs(p))
			there := func() {
				t.Helper()
				// gRPC waits longer from try to try, in the end about as long as nobody was there.
				eventually(t, 30*time.Second+outage, "samples arrive", func() error {
					got, err := p.readings()
					if err != nil {
						return err
					}
					for series, samples := range sender.all {
						if !slices.Equal(got[series], samples) {
							return fmt.Errorf("%s: %d samples, telegraf has %d: %.300v, %.300v", series, len(got[series]), len(samples), got[series], samples)
						}
					}
					if len(got) != len(sender.all) {
						return fmt.Errorf("%d series, telegraf has %d: %v", len(got), len(sender.all), slices.Sorted(maps.Keys(got)))
					}
					return nil
				})
			}
			sender.collect(t)
			there()
			p.terminate(t)
			before := sender.pages
			for end := time.Now().Add(outage); time.Now().Before(end); {
				sender.collect(t)
				reach(time.Now().Add(100 * time.Millisecond))
			}
			missed := sender.pages - before
			if !strings.Contains(sender.String(), "Error writing to outputs.") {
				t.Errorf("telegraf collected %d times and did not notice that nobody took it", missed)
			}
			p = start(t, p.dataDir, "--http-listen", p.HTTP, "--distributor-otlp-grpc-listen", p.OTLPGRPC)
			sender.collect(t)
			there()
			t.Logf("%d samples of %d series, %d of %d collected while nobody took them, 0 lost",
				sender.pages*len(sender.all), len(sender.all), missed, sender.pages)
		})
	}
}
