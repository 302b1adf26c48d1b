package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
)

// self evaluates `expr` over Freshet's own metrics, which the server stores itself.
func (p *process) self(expr string) ([]result, error) {
	var data struct {
		Result []result `json:"result"`
	}
	err := p.ask("/self/api/v1/query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// TestStages checks that a query of Freshet's own metrics returns the time of every stage for every
// input.
func TestStages(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--self-interval", "1s")
	sent, tries := 0, 0
	visit := func(lines int) {
		sent += lines
		flood(t, "udp", p.UDP, lines, 1000, func(packet []byte, i int) []byte {
			return append(packet, fmt.Sprintf("visits:1|c|#page:%d\n", i%10)...)
		})
	}
	visit(2000)
	for i := range 50 {
		body := pack(t, v1Of(requestV2(time.Now().UnixMilli()+int64(i), float64(i), "written")))
		if status, text, _, err := p.write("application/x-protobuf", body); err != nil || status != http.StatusNoContent {
			t.Fatal(status, text, err)
		}
	}
	meter, provider := service("stages", exporters["http"](t, p, true)) // deltas, which go to the aggregator
	recordAll(t, meter)
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	passed := map[string]string{
		"dogstatsd":    "forward journal parse read tile visible window",
		"remote_write": "append distribute parse queue read visible",
		"otlp":         "append distribute forward journal parse queue read tile visible",
		"tiles":        "append distribute",
	}
	if logPath() == groupPath { // deltas become an entry of the log, like other requests
		passed["otlp"] = "append distribute journal parse queue read tile visible"
	}
	eventually(t, time.Minute, "every stage is timed", func() error {
		results, err := p.self(`sum by (input, stage) (histogram_count(freshet_stage_seconds{job="freshet"})) > 0`)
		if err != nil {
			return err
		}
		stages := map[string][]string{}
		for _, r := range results {
			stages[r.Metric["input"]] = append(stages[r.Metric["input"]], r.Metric["stage"])
		}
		for input, want := range passed {
			slices.Sort(stages[input])
			if got := strings.Join(stages[input], " "); got != want {
				if tries++; tries%100 == 0 { // a busy machine makes few, large reads; the server times only some
					visit(1000)
				}
				return fmt.Errorf("%s passed the stages %q, want %q", input, got, want)
			}
		}
		return nil
	})

	// No time counts twice: the stages of a request together take no longer than the whole request.
	for input, whole := range map[string]float64{"dogstatsd": 1.5, "remote_write": 1} {
		parts, err := p.self(fmt.Sprintf(`sum(histogram_sum(freshet_stage_seconds{input=%q, stage!="visible", `+
			`stage!="read", stage!="parse"})) / sum(histogram_sum(freshet_stage_seconds{input=%q, stage="visible"}))`, input,
			input))
		if err != nil || len(parts) != 1 || parts[0].Value.V > whole {
			t.Errorf("%s: the stages together take %v of the whole time, want at most %v; error %v", input, parts, whole, err)
		}
	}
	for _, stage := range []string{"read", "parse", "window", "tile", "visible"} {
		eventually(t, 30*time.Second, "stage "+stage+" has all samples", func() error {
			got, err := p.self(fmt.Sprintf(`freshet_stage_samples_total{input="dogstatsd", stage=%q}`, stage))
			if err == nil && (len(got) != 1 || got[0].Value.V != float64(sent)) {
				err = fmt.Errorf("want %d samples, got %v", sent, got)
			}
			return err
		})
	}
	if up, err := p.query("up"); err != nil || len(up) != 0 {
		t.Errorf("the applications' tenant returns Freshet's own metrics: got %v, want none; error %v", up, err)
	}
}

// TestFreshness checks that a server measures how long a sample takes until a query returns it, for
// each tenant's datagrams and for remote write. One tenant has only a Unix socket.
func TestFreshness(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	config := filepath.Join(dir, "freshet.yaml")
	text := fmt.Sprintf("dogstatsd:\n  listeners:\n    - {network: unixgram, address: %s, tenant: team-a}\n",
		filepath.Join(dir, "team-a.sock"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--config", config, "--self-interval", "1s", "--self-probe")
	eventually(t, time.Minute, "every tenant and input is probed", func() error {
		for _, of := range []string{`tenant="default", path="dogstatsd"`,
			`tenant="team-a", path="dogstatsd"`, `tenant="freshet", path="remote_write"`} {
			probes, err := p.self(fmt.Sprintf(`histogram_count(freshet_freshness_seconds{%s})`, of))
			if err != nil || len(probes) != 1 || probes[0].Value.V < 5 {
				return fmt.Errorf("probes of %s: %v %v", of, probes, err)
			}
		}
		return nil
	})
	if lost, err := p.self(`sum(freshet_freshness_lost_total)`); err != nil || len(lost) > 0 && lost[0].Value.V > 0 {
		t.Errorf("lost probes: got %v, want none; error %v", lost, err)
	}
	for _, path := range []string{"dogstatsd", "remote_write"} {
		p99, err := p.self(fmt.Sprintf(`histogram_quantile(0.99, sum(freshet_freshness_seconds{path=%q}))`, path))
		t.Logf("%s: p99 %v s, %v", path, p99, err)
	}
}

// With self.metrics false, the server stores none of its own metrics, and answers no query for them.
func TestOwnMetricsOff(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--self-metrics=false")
	if _, err := p.self("up"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a query for own metrics returned %v, want status 404", err)
	}
	if n, err := p.ownMetric("freshet_store_open_databases"); err != nil || n != 0 {
		t.Errorf("%v stores are open, want none; error %v", n, err)
	}
}

// TestProbesCostATenantNothing checks that probes do not affect a tenant's own samples. The test writes
// six hours of samples by remote write, oldest first, and the store must accept all of them. Earlier
// versions wrote probes to the tenant's store. The probes had the present time, so the store then
// refused 85 % of the older samples as too old. A tenant with a limit of five series can have five
// series of its own, beside the probe's series.
func TestProbesCostATenantNothing(t *testing.T) {
	t.Parallel()
	const (
		senders, names = 10, 10           // each sender has its own series
		step           = 15 * time.Second // time between samples, as Prometheus scrapes
		piece          = 10 * time.Minute // the time that one request covers
		whole          = 6 * time.Hour    // 36 pieces
		all            = senders * names * int(whole/step)
	)
	p := start(t, dataDir(t), "--self-interval", "1s", "--self-probe", "--limits-max-series", "5",
		"--limits-max-new-series-per-minute", "5")
	eventually(t, time.Minute, "probes arrive by both inputs", func() error {
		for _, of := range []string{`tenant="default",path="dogstatsd"`, `tenant="freshet",path="remote_write"`} {
			probes, err := p.self(fmt.Sprintf(`histogram_count(freshet_freshness_seconds{%s})`, of))
			if err != nil || len(probes) != 1 || probes[0].Value.V < 2 {
				return fmt.Errorf("probes of %s: %v %v", of, probes, err)
			}
		}
		return nil
	})
	begin := time.Now().Add(-whole).Truncate(step)
	for at := begin; at.Before(begin.Add(whole)); at = at.Add(piece) {
		for sender := range senders {
			var r prompb.WriteRequest
			for name := range names {
				ts := prompb.TimeSeries{Labels: []prompb.Label{
					{Name: "__name__", Value: "replayed"}, {Name: "of", Value: fmt.Sprint(sender, name)},
				}}
				for i := at; i.Before(at.Add(piece)); i = i.Add(step) {
					ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: i.UnixMilli(), Value: 1})
				}
				r.Timeseries = append(r.Timeseries, ts)
			}
			if status, text, _, err := p.write(remoteWriteV1, pack(t, &r)); err != nil || status != http.StatusNoContent {
				t.Fatal(at, status, text, err)
			}
		}
	}
	got, err := p.value(fmt.Sprintf(`sum(count_over_time(replayed[%ds]))`, 2*int(whole.Seconds())))
	if err != nil || got != float64(all) {
		t.Errorf("got %v samples, want %d; error %v", got, all, err)
	}

	flood(t, "udp", p.UDP, 5, 1000, func(packet []byte, i int) []byte {
		return append(packet, fmt.Sprintf("gauge%d:1|g\n", i)...)
	})
	eventually(t, time.Minute, "the tenant has all five series", func() error {
		if n, err := p.value(`count({__name__=~"gauge."})`); err != nil || n != 5 {
			return fmt.Errorf("the tenant has %v series, want 5; error %v", n, err)
		}
		return nil
	})
}
