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

// telegrafBinary is the telegraf that `make clients` builds.
const telegrafBinary = "../.cache/telegraf"

// telegrafPage is the page that telegraf collects: one metric of each type, in Prometheus' text format
// with times. Each line has a series, spelled as the function readings spells it, then its value and its
// time. The page has hard cases: values that are not finite, and a label that sorts before __name__.
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

// telegrafMetrics is how many metrics telegraf makes of a page: one for each counter, gauge, bucket
// and quantile, and one for each count with its sum.
const telegrafMetrics = 12

// telegraf is a running telegraf, with all samples that it has collected.
type telegraf struct {
	*output
	client *http.Client
	pages  int
	last   int64               // time of the last page, Unix milliseconds
	all    map[string][]string // all samples by series, as in readings
}

// startTelegraf starts a telegraf with the given outputs.
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
		t.Fatalf("start telegraf, which `make clients` builds: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("telegraf logged:\n%s", sender.output)
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

// collect sends telegraf the next page. Each page has new values.
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
		t.Fatalf("telegraf answered %s", r.Status)
	}
	for line := range strings.Lines(page) {
		if part := strings.Fields(line); len(part) == 3 {
			s.all[part[0]] = append(s.all[part[0]], part[2]+" "+part[1])
		}
	}
}

// readings returns the samples that p has stored from the pages, by the text of their series. Each
// sample is "milliseconds value".
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

// TestTelegrafSends checks that Freshet has exactly the samples that telegraf collected, even if
// Freshet is down for a while. Telegraf sends by remote write, configured as in docs/remote-write.md,
// and by OTLP.
//
// Telegraf's remote write sends only the newest sample of each series in a batch, so a batch must be
// exactly one page. If telegraf flushed in the middle of a page, samples would be missing. Therefore
// all pages but the first and the last are collected while Freshet is down.
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
				// After each failed attempt gRPC waits longer, but at most about as long as the outage.
				eventually(t, 30*time.Second+outage, "samples arrive", func() error {
					got, err := p.readings()
					if err != nil {
						return err
					}
					for series, samples := range sender.all {
						if !slices.Equal(got[series], samples) {
							return fmt.Errorf("%s: Freshet has %d samples, telegraf has %d: %.300v, %.300v",
								series, len(got[series]), len(samples), got[series], samples)
						}
					}
					if len(got) != len(sender.all) {
						return fmt.Errorf("Freshet has %d series, telegraf has %d: %v",
							len(got), len(sender.all), slices.Sorted(maps.Keys(got)))
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
				t.Errorf("telegraf collected %d pages during the outage and logged no error", missed)
			}
			p = start(t, p.dataDir, "--http-listen", p.HTTP, "--distributor-otlp-grpc-listen", p.OTLPGRPC)
			sender.collect(t)
			there()
			t.Logf("%d samples of %d series, none lost; %d of %d pages were collected during the outage",
				sender.pages*len(sender.all), len(sender.all), missed, sender.pages)
		})
	}
}
