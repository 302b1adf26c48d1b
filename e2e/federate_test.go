package e2e

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// stampedApplication is a target to scrape whose samples all have one fixed time, so that two servers
// have the same samples however often they scrape. It has no samples until `begin` is called, since
// Prometheus does not send samples from before its own start.
func stampedApplication(t *testing.T) (target *httptest.Server, begin func()) {
	t.Helper()
	reg := prometheus.NewRegistry()
	f := promauto.With(reg)
	requests := f.NewCounterVec(prometheus.CounterOpts{Name: "app_requests_total", Help: "Requests."},
		[]string{"path", "code"})
	for i, path := range []string{"/", `/"quoted"\n`, "/größer", "line\nfeed"} {
		requests.WithLabelValues(path, "200").Add(float64(i) + 0.25)
		requests.WithLabelValues(path, "").Add(1e300)
	}
	special := f.NewGaugeVec(prometheus.GaugeOpts{Name: "app_special"}, []string{"is"})
	// The values leave out -0, because Prometheus sends it as 0.
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 1e-300} {
		special.WithLabelValues(fmt.Sprint(v)).Set(v)
	}
	f.NewGauge(prometheus.GaugeOpts{Name: "app.with.dots"}).Set(7)
	classic := f.NewHistogramVec(prometheus.HistogramOpts{Name: "app_classic_seconds", Help: "Classic.",
		Buckets: []float64{.1, 1, 10}}, []string{"path"})
	native := f.NewHistogramVec(prometheus.HistogramOpts{Name: "app_native_seconds", Help: "Native.",
		NativeHistogramBucketFactor: 1.1}, []string{"path"})
	summary := f.NewSummary(prometheus.SummaryOpts{
		Name: "app_summary_seconds", Objectives: map[float64]float64{0.5: 0.05, 0.99: 0.001},
	})
	for i := range 100 {
		classic.WithLabelValues("/").Observe(float64(i) / 4)
		native.WithLabelValues("/").Observe(float64(i-50) / 4)
		native.WithLabelValues("/b").Observe(float64(i))
		summary.Observe(float64(i))
	}
	var stamp atomic.Int64 // Unix ms
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		at := stamp.Load()
		if at == 0 {
			return nil, nil
		}
		families, err := reg.Gather()
		for _, f := range families {
			for _, m := range f.GetMetric() {
				m.TimestampMs = &at
			}
		}
		return families, err
	})
	target = httptest.NewServer(promhttp.HandlerFor(gather, promhttp.HandlerOpts{}))
	t.Cleanup(target.Close)
	return target, func() { stamp.Store(time.Now().UnixMilli()) }
}

// federated is the answer of /federate: the content type and the body.
func (p *process) federated(accept string, match ...string) (string, error) {
	r, err := http.NewRequest(http.MethodGet, "http://"+p.HTTP+"/federate?"+url.Values{"match[]": match}.Encode(), nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	text := answer.Header.Get("Content-Type") + "\n" + string(body)
	if strings.Contains(text, "encoding=text") {
		text = strings.ReplaceAll(text, ":  ", ": ") // the library writes one space or two, at random for each build
	}
	return text, err
}

// firstDifference shows where two texts first differ, with the text around that place.
func firstDifference(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	around := func(text string) string { return text[max(0, i-300):min(len(text), i+200)] }
	return fmt.Sprintf("at byte %d\n%q\nPrometheus answers\n%q", i, around(got), around(want))
}

// TestFederatesAsPrometheus checks that /federate returns the same bytes as a Prometheus with the same
// samples, in each format. A real Prometheus can federate from Freshet, and also gets samples that came
// by DogStatsD.
func TestFederatesAsPrometheus(t *testing.T) {
	t.Parallel() // the test mostly waits
	p := start(t, dataDir(t))
	target, begin := stampedApplication(t)
	theirs := startPrometheus(t, fmt.Sprintf(`
global:
  scrape_interval: 500ms
  scrape_native_histograms: true
scrape_configs:
  - job_name: app
    static_configs: [{targets: [%q]}]
  - job_name: federate
    metrics_path: /federate
    honor_labels: true
    params: {"match[]": ['{__name__=~"live_.*"}']}
    static_configs: [{targets: [%q]}]
remote_write:
  - url: http://%[2]s/api/v1/write
    send_native_histograms: true
`, strings.TrimPrefix(target.URL, "http://"), p.HTTP))
	begin()

	const all = `{__name__=~"app.*"}`
	eventually(t, startLimit, "both have the same series", func() error {
		want, err := theirs.value("count(" + all + ")")
		if err != nil {
			return err
		}
		got, err := p.value("count(" + all + ")")
		if err == nil && (got != want || want < 25) {
			err = fmt.Errorf("Freshet has %v series, Prometheus has %v", got, want)
		}
		return err
	})
	for _, accept := range []string{
		"text/plain;version=0.0.4", "text/plain;version=1.0.0;escaping=allow-utf-8", "",
		"application/openmetrics-text;version=1.0.0",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
	} {
		for _, match := range [][]string{{all}, {"app_native_seconds", "app_special", `{job="app",__name__="app_special"}`},
			{`{"app.with.dots"}`}, {"none"}} {
			want, err := theirs.federated(accept, match...)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.federated(accept, match...); err != nil || got != want {
				t.Errorf("Accept %q, match[] %q: %v\n%s", accept, match, err, firstDifference(got, want))
			}
		}
	}

	conn := dialTap(t, "udp", p.UDP)
	eventually(t, startLimit, "Prometheus has federated what came by DogStatsD", func() error {
		if _, err := io.WriteString(conn, "live.level:42|g|#zone:eu"); err != nil {
			return err
		}
		v, err := theirs.value(`live_level{zone="eu"}`)
		if err == nil && v != 42 {
			err = fmt.Errorf("the federating Prometheus has the value %v, want 42", v)
		}
		return err
	})
	// A scrape may take longer than its 0.5 s on a busy machine.
	if v, err := theirs.value(`max_over_time(up{job="federate"}[1m])`); err != nil || v != 1 {
		t.Errorf("up is %v, %v", v, err)
	}
}
