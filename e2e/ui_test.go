package e2e

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/core/record"
)

// hostile is text that would run as markup if the page did not escape it.
const hostile = "<img src=x onerror=alert(1)>"

// TestPage opens every page of the web UI in a real browser, on servers with an hour of history and
// a continuous load. The checks are in ui/test, which also keeps screenshots.
func TestPage(t *testing.T) {
	// Every append is over its budget, so that the pages have something to show.
	slow := []string{
		"--self-interval", "1s", "--self-probe", "--self-budgets-append", "1us", "--self-recorder-budgets=false",
	}
	p := start(t, dataDir(t), append(slow, "--limits-max-series-per-metric", "20")...)
	past(t, p)
	present(t, p)
	token := "a-token-for-the-page"
	dir := dataDir(t)
	file := filepath.Join(dir, "tenants.yaml")
	text := fmt.Sprintf("tenants: [{name: team-a, may: read, tokens: [{sha256: %x}]}]\n", sha256.Sum256([]byte(token)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := start(t, filepath.Join(dir, "data"), "--http-tenants-file", file, "--self-metrics=false")
	data := dataDir(t)
	lock, flood := recordings(t, filepath.Join(data, "records"))
	recorded := start(t, data, append(slow, "--self-traces-query", "1ns")...)

	ruled := start(t, dataDir(t), "--config", rulesForPages(t))
	pastAlerts(t, ruled)

	screenshots := os.Getenv("UI_SCREENSHOTS")
	if screenshots == "" {
		screenshots = filepath.Join("..", ".cache", "screenshots")
	}
	if err := os.MkdirAll(screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	absolute, err := filepath.Abs(screenshots)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute) // it takes one on a quiet machine
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", "test/page.test.mjs")
	cmd.Dir = filepath.Join("..", "ui")
	cmd.Env = append(os.Environ(), "FRESHET=http://"+p.HTTP, "FRESHET_CLOSED=http://"+closed.HTTP, "FRESHET_TOKEN="+token,
		"FRESHET_RECORDED=http://"+recorded.HTTP, "FRESHET_RULED=http://"+ruled.HTTP, "RECORD="+lock,
		"RECORD_HOSTILE="+flood, "HOSTILE="+hostile, "UDP="+p.UDP, "UI_SCREENSHOTS="+absolute)
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("the page took %v; screenshots are in %s\n%s", time.Since(begun).Round(time.Second), absolute, out)
	if err != nil {
		t.Fatalf("the page: %v", err)
	}
}

// rulesForPages returns a configuration with rules: alerts that fire and that are pending, with hostile labels
// and annotations, and an expression that cannot be evaluated. They need no data, so they never wait. Nobody
// listens at the Alertmanager's address.
func rulesForPages(t *testing.T) string {
	t.Helper()
	dir := dataDir(t)
	rules, config := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "freshet.yaml")
	write(t, rules, fmt.Sprintf(`
groups:
- name: recorded
  interval: 1s
  rules:
  - {record: "web:hits", expr: vector(134)}
- name: alerts
  interval: 1s
  rules:
  - alert: WebHits
    expr: label_replace(vector(134), "page", %[1]q, "", "")
    labels: {severity: page}
    annotations: {summary: 'hits of %[1]s, {{ $value }} of them', runbook: 'https://runbooks.example/web'}
  - {alert: Sessions, expr: vector(333) > 0, for: 10h, keep_firing_for: 5m}
  - {alert: Never, expr: vector(1) < 0}
  - {alert: Broken, expr: 'vector(1) * on() group_left() (vector(1) or label_replace(vector(2), "a", "b", "", ""))'}
`, hostile))
	write(t, config, fmt.Sprintf("rules:\n  files: [%s]\n  alertmanagers: [{targets: [%s], path_prefix: /am}]\n", rules,
		freeAddress(t)))
	return config
}

// pastAlerts is a helper that writes the states of an alert half an hour ago: 5 min pending, 10 min firing.
func pastAlerts(t *testing.T, p *process) {
	t.Helper()
	begin := time.Now().Add(-30 * time.Minute)
	state := func(name string, from, to time.Duration) prompb.TimeSeries {
		ts := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "ALERTS"},
			{Name: "alertname", Value: "QueueLong"}, {Name: "alertstate", Value: name}, {Name: "page", Value: hostile}}}
		for at := from; at < to; at += 15 * time.Second {
			ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: begin.Add(at).UnixMilli(), Value: 1})
		}
		ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: begin.Add(to).UnixMilli(),
			Value: math.Float64frombits(value.StaleNaN)})
		return ts
	}
	status, text, _, err := p.write(remoteWriteV1, pack(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		state("pending", 0, 5*time.Minute), state("firing", 5*time.Minute, 15*time.Minute)}}))
	if err != nil || status/100 != 2 {
		t.Fatalf("write past alerts: status %d, %s, %v", status, text, err)
	}
}

// recordings puts two records into a directory: one of a lock, and one of a flood with hostile names.
func recordings(t *testing.T, dir string) (lock, flood string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "internal", "core", "diagnose", "testdata", "lock.zip"))
	if err != nil {
		t.Fatal(err)
	}
	of, err := record.Open(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	lock, flood = of.ID, "20261121T235756.730-queue"
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range map[string]string{
		record.Summary: fmt.Sprintf(
			`{"format":1, "id":%q, "reason":"stage queue took 2s: %s", "stage":"queue", "spent_seconds":2, "budget_seconds":0.25,
			"began":"2026-11-21T23:57:56Z", "ended":"2026-11-21T23:58:01Z", "gomaxprocs":2}`, flood, hostile),
		record.MetricsBegin: "freshet_limit_samples_total 0\n",
		record.MetricsEnd:   "freshet_limit_samples_total 50000\n",
		record.Top: fmt.Sprintf(`[{"tenant":%q, "over_limits":[{"metric":%[1]q, "label":%[1]q, "values":7000, `+
			`"sender":%[1]q, "limit":"limits.max_series"}]}]`, hostile),
	} {
		part, err := w.Create(name)
		if err == nil {
			_, err = part.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string][]byte{lock: text, flood: b.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, id+".zip"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return lock, flood
}

// past is a helper that writes an hour of a shop's metrics by remote write: counters, a gauge, a classic
// and a native histogram.
func past(t *testing.T, p *process) {
	t.Helper()
	const step, span = 15 * time.Second, time.Hour
	type line struct {
		labels []prompb.Label
		value  func(minutes float64) float64 // the value, or if `grows` is set, the growth in one step
		grows  bool
	}
	labels := func(pairs ...string) (ls []prompb.Label) {
		for i := 0; i < len(pairs); i += 2 {
			ls = append(ls, prompb.Label{Name: pairs[i], Value: pairs[i+1]})
		}
		return ls
	}
	wave := func(low, high, period, shift float64) func(float64) float64 {
		return func(m float64) float64 {
			return low + (high-low)*(0.5+0.5*math.Sin(2*math.Pi*(m/period+shift))) + (high-low)*0.08*rand.Float64()
		}
	}
	var lines []line
	for i, region := range []string{"eu-north", "eu-west", "us-east", "us-west", "asia-east"} {
		for j, method := range []string{"card", "invoice"} {
			lines = append(lines, line{labels("__name__", "shop_orders_total", "method", method, "region", region),
				wave(float64(20+10*i), float64(120+40*i-30*j), 40+3*float64(i), float64(i)/7), true})
		}
		lines = append(lines,
			line{labels("__name__", "shop_queue_depth", "region", region), wave(5, float64(40+9*i), 25, float64(i)/5), false})
	}
	bounds := []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "+Inf"}
	for i, le := range bounds {
		lines = append(lines, line{labels("__name__", "shop_search_seconds_bucket", "le", le), func(m float64) float64 {
			middle := 4 + 1.8*math.Sin(2*math.Pi*m/35) // the fullest bucket
			return 400 / (1 + math.Exp(middle-float64(i)))
		}, true})
	}
	begin := time.Now().Add(-span)
	series := make([]prompb.TimeSeries, len(lines))
	for i, l := range lines {
		series[i].Labels = l.labels
		var total float64
		for at := time.Duration(0); at < span; at += step {
			v := l.value(at.Minutes())
			if total += v; l.grows {
				v = total
			}
			series[i].Samples = append(series[i].Samples, prompb.Sample{Timestamp: begin.Add(at).UnixMilli(), Value: v})
		}
	}
	for _, method := range []string{"card", "invoice"} {
		ts := prompb.TimeSeries{Labels: labels("__name__", "shop_checkout_seconds", "method", method)}
		h := &histogram.FloatHistogram{
			Schema: 2, PositiveSpans: []histogram.Span{{Offset: -20, Length: 24}}, PositiveBuckets: make([]float64, 24),
		}
		for at := time.Duration(0); at < span; at += step {
			for i := range h.PositiveBuckets {
				off := (float64(i) - 12 - 5*math.Sin(2*math.Pi*at.Minutes()/45)) / 3
				n := math.Round(200 * math.Exp(-off*off/2))
				h.PositiveBuckets[i] += n
				h.Count += n
				h.Sum += n * math.Exp2(float64(i-20)/4)
			}
			ts.Histograms = append(ts.Histograms, prompb.FromFloatHistogram(begin.Add(at).UnixMilli(), h.Copy()))
		}
		series = append(series, ts)
	}
	series = append(series, prompb.TimeSeries{
		Labels:  labels("__name__", "hostile_<b>name</b>", "page", hostile),
		Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
	})
	lost := "shop_recommendation_cache_lookups_failed"
	said := []prompb.MetricMetadata{{MetricFamilyName: "shop_checkout_seconds", Type: prompb.MetricMetadata_HISTOGRAM}}
	for _, name := range []string{lost, lost + "_for_lack_of_connections_to_shards_total"} {
		series = append(series,
			prompb.TimeSeries{
				Labels: labels("__name__", name), Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
			})
		said = append(said, prompb.MetricMetadata{MetricFamilyName: name, Type: prompb.MetricMetadata_COUNTER,
			Help: "How often the cache was asked and did not answer in time, so that recommendations were computed anew. " +
				"Rising: there are too few shards."})
	}
	status, text, _, err := p.write(remoteWriteV1, pack(t, &prompb.WriteRequest{Timeseries: series, Metadata: said}))
	if err != nil || status/100 != 2 {
		t.Fatalf("write the past: status %d, %s, %v", status, text, err)
	}
}

// present is a helper that sends until the test ends. By DogStatsD, it sends all kinds, events,
// malformed lines, and more series than a limit allows. By remote write, it sends a request each second.
func present(t *testing.T, p *process) {
	t.Helper()
	conn, err := net.Dial("udp", p.UDP)
	if err != nil {
		t.Fatal(err)
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(done)
		<-stopped
		conn.Close()
	})
	send := func(lines ...string) { _, _ = conn.Write([]byte(strings.Join(lines, "\n"))) } // the server may have ended
	// The same request is sent every second, so all requests but the first are repeats.
	request := pack(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "shop_stock"}, {Name: "shop", Value: "1"}},
		Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 7}},
	}}})
	event := func(kind, title, text string) {
		send(fmt.Sprintf("_e{%d,%d}:%s|%s|t:%s|#team:web", len(title), len(text), title, text, kind))
	}
	go func() {
		defer close(stopped)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		event("success", "Deploy of web 4.2", "by the pipeline")
		event("error", hostile, hostile)
		for i := 0; ; i++ {
			var lines []string
			for range 5 {
				route := []string{"/home", "/cart", "/search", "/item"}[rand.IntN(4)]
				lines = append(lines, fmt.Sprintf("web.requests:1|c|#route:%s,env:prod", route),
					fmt.Sprintf("web.latency:%.1f|ms|#route:%s,env:prod", 20*math.Exp(rand.NormFloat64()*0.8), route))
			}
			lines = append(lines, fmt.Sprintf("web.sessions:%d|g|#env:prod", 300+i%100),
				fmt.Sprintf("web.users:u%d|s|#env:prod", rand.IntN(500)),
				"web.hits:1|c|#page:"+hostile, fmt.Sprintf("web.flood:1|c|#request:%08x", rand.Uint32()),
				"web.broken:"+hostile+"|c")
			send(lines...)
			if i%20 == 0 {
				_, _, _, _ = p.write(remoteWriteV1, request) // the server may have ended
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
}
