package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exporterBinary is the statsd_exporter that `make clients` builds.
const exporterBinary = "../.cache/statsd_exporter"

// exporterMapping has a timer with classic buckets. The other timers are summaries, by default and by a rule.
const exporterMapping = `
mappings:
  - match: "shop.*.requests"
    match_metric_type: counter
    name: shop_requests_total
    labels: {service: "$1"}
  - match: "shop.*.latency"
    observer_type: summary
    name: shop_latency_seconds
    labels: {service: "$1"}
    summary_options:
      quantiles: [{quantile: 0.5, error: 0.01}, {quantile: 0.9, error: 0.01}, {quantile: 0.99, error: 0.001}]
  - match: "shop.wait"
    observer_type: histogram
    histogram_options: {buckets: [0.05, 0.1, 0.2, 0.4]}
    name: shop_wait_seconds
`

// startExporter starts a statsd_exporter, and returns its socket for datagrams and its address for scrapes.
func startExporter(t *testing.T, mapping string) (socket, web string) {
	t.Helper()
	socket, web = filepath.Join(dataDir(t), "socket"), freeAddress(t)
	out := &output{}
	cmd := exec.Command(exporterBinary, "--statsd.listen-unixgram="+socket, "--statsd.listen-udp=",
		"--statsd.listen-tcp=", "--web.listen-address="+web, "--statsd.mapping-config="+mapping)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start statsd_exporter, which `make clients` builds: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("statsd_exporter printed:\n%s", out)
		}
	})
	exporter := &process{}
	exporter.HTTP = web
	eventually(t, startLimit, "statsd_exporter answers", func() error {
		_, err := exporter.get("/metrics", nil)
		return err
	})
	return socket, web
}

// shopTraffic sends the same lines to Freshet and the exporter, and others to Freshet and the flusher, ten times a
// second, until the test ends.
func shopTraffic(t *testing.T, freshet, exporter string, f *flusher) {
	t.Helper()
	dial := func(network, address string) net.Conn {
		conn, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	here, there := dial("udp", freshet), dial("unixgram", exporter)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			shop, web := shopLines(i), webLines(i)
			_, _ = here.Write(shop) // a datagram that is lost shows as a difference
			_, _ = there.Write(shop)
			_, _ = here.Write(web)
			f.take(web)
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		_, _ = here.Close(), there.Close()
	})
}

// shopLines returns the lines of a tenth of a second. Latencies are spread evenly over a second.
func shopLines(i int) []byte {
	var b strings.Builder
	for n, service := range []string{"cart", "search"} {
		code := []int{200, 200, 500}[i%3]
		fmt.Fprintf(&b, "shop.%s.requests:%d|c|#code:%d\n", service, n+1, code)
		for v := range 10 {
			fmt.Fprintf(&b, "shop.%s.latency:%d|ms\n", service, (n+1)*(100+10*v+i%10))
		}
	}
	fmt.Fprintf(&b, "shop.wait:%d|ms\nshop.size:%d|h\nshop.queue:%d|g|#name:a\nshop.queue:7|g|#name:b\n",
		10+30*(i%10), 1000+100*(i%10), 100+i%2)
	return []byte(b.String())
}

// TestConvertedDashboards checks `freshet convert dashboard` by the answers. A Prometheus scrapes a statsd_exporter
// and a stand-in for StatsD and the Datadog Agent. They and a Freshet with the converted mapping get the same lines.
// Each query of a dashboard, asked there, has the same answer as the converted query here.
func TestConvertedDashboards(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mapping, config := filepath.Join(dir, "mapping.yml"), filepath.Join(dir, "freshet.yaml")
	if err := os.WriteFile(mapping, []byte(exporterMapping), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), freshet, "convert", "statsd_exporter", mapping).Output()
	if len(text) == 0 { // the exit code is 1, since summaries become histograms
		t.Fatal(err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dataDir(t), "--config", config)
	socket, web := startExporter(t, mapping)
	f, flushed := startFlusher(t)
	old := startPrometheus(t, fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: statsd, "+
		"static_configs: [{targets: [%q]}]}, {job_name: flushes, scrape_interval: 10s, "+
		"static_configs: [{targets: [%q]}]}]\n", web, flushed))
	shopTraffic(t, p.UDP, socket, f)
	for _, d := range []struct {
		file, from       string
		queries, changed int
	}{
		{"shop.json", "statsd_exporter", 41, 35},
		{"web-statsd.json", "statsd", 17, 17},
		{"web-datadog.json", "datadog", 8, 8},
	} {
		checkConverted(t, p, old, d.file, d.from, d.queries, d.changed)
	}
}

// checkConverted checks that all queries of a dashboard have equal answers, and how many there are and change.
func checkConverted(t *testing.T, p, old *process, file, from string, queries, changed int) {
	t.Helper()
	var converted struct {
		Queries []struct {
			Was, Is  string
			Variable bool
		}
		Notes       []json.RawMessage
		Compared    int
		Differences []struct{ Was, Is, Why string }
	}
	eventually(t, 4*time.Minute, "all answers to "+file+" are equal", func() error {
		out, err := exec.CommandContext(t.Context(), freshet, "convert", "dashboard", "testdata/"+file, "--json",
			"--from", from, "--drop-label", "job,instance", "--summary-quantiles", "0.5,0.9,0.99",
			"--server", p.HTTP, "--check", old.HTTP).Output()
		if len(out) == 0 {
			return fmt.Errorf("nothing was written: %w", err)
		}
		converted.Notes, converted.Differences, converted.Queries = nil, nil, nil
		if err := json.Unmarshal(out, &converted); err != nil {
			t.Fatal(err)
		}
		var different []error
		for _, d := range converted.Differences {
			different = append(different, fmt.Errorf("%s\n  was %s\n  is  %s", d.Why, d.Was, d.Is))
		}
		if len(different) == 0 && err != nil || converted.Compared < queries {
			different = append(different, fmt.Errorf("%v, %d compared, notes %s", err, converted.Compared, converted.Notes))
		}
		return errors.Join(different...)
	})
	n, other := 0, 0
	for _, q := range converted.Queries {
		if q.Variable {
			continue
		}
		n++
		if q.Was != q.Is {
			other++
		}
		if (strings.Contains(q.Was, "quantile=") || strings.Contains(q.Was, "_time_")) &&
			!strings.Contains(q.Was, "absent(") {
			was := strings.NewReplacer("$q", "0.9", "$service", ".*", "${site}", "web").Replace(q.Was)
			if got, err := p.query(was); err != nil || len(got) > 0 {
				t.Errorf("before the conversion of %s, Freshet answers %v, error %v, want no series", was, got, err)
			}
		}
	}
	if n != queries || other != changed {
		t.Errorf("%s has %d queries, of which %d changed, want %d and %d", file, n, other, queries, changed)
	}
}
