package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// prometheusBinary is the Prometheus that `make clients` builds.
const prometheusBinary = "../.cache/prometheus"

// application is a target to scrape. It has one metric of each type, which changes with each scrape.
func application(t *testing.T) *httptest.Server {
	reg := prometheus.NewRegistry()
	f := promauto.With(reg)
	requests := f.NewCounterVec(prometheus.CounterOpts{Name: "app_requests_total", Help: "Requests."}, []string{"code"})
	load := f.NewGauge(prometheus.GaugeOpts{Name: "app_load", Help: "How busy it is, größer is worse."})
	classic := f.NewHistogram(prometheus.HistogramOpts{
		Name: "app_classic_seconds", Help: "Classic.", Buckets: []float64{.1, 1, 10},
	})
	native := f.NewHistogram(prometheus.HistogramOpts{
		Name: "app_native_seconds", Help: "Native.", NativeHistogramBucketFactor: 1.1,
	})
	handler := promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
	scrapes := 0
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scrapes++ // without a lock, since one scrape ends before the next begins
		requests.WithLabelValues("500").Add(0.5)
		requests.WithLabelValues("200").(prometheus.ExemplarAdder).AddWithExemplar(float64(scrapes),
			prometheus.Labels{"trace_id": fmt.Sprint("t", scrapes)})
		load.Set(float64(scrapes%7) - 3)
		classic.Observe(float64(scrapes%20) / 2)
		native.Observe(float64(scrapes%20) / 2)
		handler.ServeHTTP(w, r)
	}))
}

// sendingPrometheus starts a Prometheus that scrapes `target` and sends the samples to a URL by remote
// write.
func sendingPrometheus(t *testing.T, target, write, message string) *process {
	t.Helper()
	return startPrometheus(t, fmt.Sprintf(`
global:
  scrape_interval: 250ms
  scrape_native_histograms: true
scrape_configs:
  - job_name: app
    static_configs: [{targets: [%q]}]
remote_write:
  - url: %s
    protobuf_message: %s
    send_exemplars: true
    send_native_histograms: true
    metadata_config: {send_interval: 1s}
`, strings.TrimPrefix(target, "http://"), write, message))
}

// startPrometheus starts a Prometheus with a configuration and further flags, and waits until it is ready.
func startPrometheus(t *testing.T, settings string, flags ...string) *process {
	t.Helper()
	return startPrometheusIn(t, dataDir(t), settings, flags...)
}

// startPrometheusIn starts a Prometheus with a data directory.
func startPrometheusIn(t *testing.T, dir, settings string, flags ...string) *process {
	t.Helper()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{dataDir: dir, output: &output{}, exited: make(chan struct{})}
	p.cmd = exec.Command(prometheusBinary, append([]string{"--config.file", config, "--storage.tsdb.path", dir,
		"--web.listen-address", "127.0.0.1:0", "--enable-feature", "exemplar-storage"}, flags...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start Prometheus, which `make clients` builds: %v", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("Prometheus printed:\n%s", p.output)
		}
	})
	address := regexp.MustCompile(`msg="Listening on" .*address=(127\.0\.0\.1:\d+)`)
	eventually(t, startLimit, "Prometheus is ready", func() error {
		found := address.FindStringSubmatch(p.output.String())
		if found == nil {
			return fmt.Errorf("Prometheus has not logged its address")
		}
		p.HTTP = found[1]
		_, err := p.get("/-/ready", nil)
		return err
	})
	return p
}

// matrix returns, for each series of the job, the text of every sample up to a time. Histograms have all
// their buckets.
func (p *process) matrix(at time.Time) (map[string][]string, error) {
	var data struct {
		Result []struct {
			Metric     map[string]string
			Values     []json.RawMessage
			Histograms []json.RawMessage
		}
	}
	err := p.ask("/api/v1/query",
		url.Values{"query": {`{job="app"}[10m]`}, "time": {fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000)}}, &data)
	all := map[string][]string{}
	for _, r := range data.Result {
		for _, v := range slices.Concat(r.Values, r.Histograms) {
			all[fmt.Sprint(r.Metric)] = append(all[fmt.Sprint(r.Metric)], string(v))
		}
	}
	return all, err
}

// TestPrometheusSends checks that Freshet has, bit by bit, every sample of a Prometheus that sends
// to it, with exemplars, metadata and stale markers. The Prometheus has its default settings and
// scrapes an application. Freshet is stopped for a while, and killed.
func TestPrometheusSends(t *testing.T) {
	t.Parallel() // it mostly waits
	outage := 8 * time.Second
	if soak {
		outage = 3 * time.Minute
	}
	for name, message := range map[string]string{"1.0": "prometheus.WriteRequest",
		"2.0": "io.prometheus.write.v2.Request"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := application(t)
			defer app.Close()
			p := start(t, dataDir(t))
			sender := sendingPrometheus(t, app.URL, "http://"+p.HTTP+"/api/v1/write", message)
			there := func(p *process, n float64) {
				t.Helper()
				eventually(t, 30*time.Second, "samples arrive", func() error {
					v, err := p.value("app_requests_total{code=\"500\"}")
					if err == nil && v < n {
						err = fmt.Errorf("the counter is %v, want at least %v", v, n)
					}
					return err
				})
			}
			there(p, 3)
			eventually(t, 30*time.Second, "metadata arrives", func() error {
				if name == "2.0" {
					return nil // this release of Prometheus sends no metadata with version 2.0
				}
				var metadata map[string][]struct{ Type, Help string }
				if err := p.ask("/api/v1/metadata", nil, &metadata); err != nil {
					return err
				}
				if m := metadata["app_load"]; len(m) != 1 || m[0].Type != "gauge" ||
					m[0].Help != "How busy it is, größer is worse." {
					return fmt.Errorf("the metadata is %v", metadata)
				}
				return nil
			})
			address := p.HTTP
			p.terminate(t)
			stopped := time.Now()
			reach(stopped.Add(outage))
			p = start(t, p.dataDir, "--http-listen", address)
			v := 0.0
			eventually(t, 30*time.Second, "the sender's last scrape succeeded", func() (err error) {
				v, err = sender.value("app_requests_total{code=\"500\"}")
				return err
			})
			there(p, v)
			p.kill(t)
			p = start(t, p.dataDir, "--http-listen", address)
			there(p, v+3)
			app.Close() // so the target no longer answers
			for _, server := range []*process{sender, p} {
				eventually(t, 30*time.Second, "series end", func() error {
					got, err := server.query("app_load")
					if err == nil && len(got) > 0 {
						err = fmt.Errorf("app_load is still %v", got)
					}
					return err
				})
			}
			end := time.Now().Add(-time.Second)
			var want map[string][]string
			eventually(t, 30*time.Second, "Freshet has all samples", func() (err error) {
				if want, err = sender.matrix(end); err != nil {
					return err
				}
				if len(want) < 15 {
					t.Fatalf("Prometheus has %d series, want at least 15: %v", len(want), slices.Collect(maps.Keys(want)))
				}
				got, err := p.matrix(end)
				if err != nil {
					return err
				}
				for series, samples := range want {
					if !slices.Equal(got[series], samples) {
						return fmt.Errorf("%s: Freshet has %d samples, Prometheus has %d: %.200v, %.200v",
							series, len(got[series]), len(samples), got[series], samples)
					}
				}
				if len(got) != len(want) {
					return fmt.Errorf("Freshet has %d series, Prometheus has %d", len(got), len(want))
				}
				return nil
			})
			n := 0
			for _, samples := range want {
				n += len(samples)
			}
			t.Logf("%d samples of %d series, 0 lost", n, len(want))
			checkExemplars(t, sender, p, stopped)
			if v, err := p.metric(`freshet_distributor_refused_total{reason="duplicate"}`); err != nil || v != 0 {
				t.Errorf("%v samples were refused because another value was stored, want none; error %v", v, err)
			}
		})
	}
}

// checkExemplars compares the exemplars since a time. Older exemplars may have been lost when a
// process was killed, because they are only in memory.
func checkExemplars(t *testing.T, want, got *process, since time.Time) {
	t.Helper()
	exemplars := func(p *process) (all []string) {
		var data []struct {
			Exemplars []struct {
				Labels    map[string]string
				Value     string
				Timestamp float64
			}
		}
		if err := p.ask("/api/v1/query_exemplars", url.Values{"query": {"app_requests_total"},
			"start": {fmt.Sprint(since.Unix())}, "end": {fmt.Sprint(time.Now().Unix())}}, &data); err != nil {
			t.Fatal(err)
		}
		for _, series := range data {
			for _, e := range series.Exemplars {
				all = append(all, fmt.Sprint(e))
			}
		}
		slices.Sort(all)
		return all
	}
	w, g := exemplars(want), exemplars(got)
	if len(w) < 5 {
		t.Errorf("Prometheus has %d exemplars, want at least 5", len(w))
	}
	if !slices.Equal(w, g) {
		t.Errorf("exemplars:\n got %d %.300v\nwant %d %.300v", len(g), g, len(w), w)
	}
}
