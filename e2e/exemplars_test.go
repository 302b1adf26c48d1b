package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// exemplar is an exemplar of a series, as the server returns it.
type exemplar struct {
	Series   map[string]string // without the label host
	Labels   map[string]string
	Value, T float64
}

// exemplars returns the exemplars of the series that `expr` selects, as Grafana asks for them.
func (p *process) exemplars(expr string) (all []exemplar, err error) {
	var found []struct {
		Series    map[string]string `json:"seriesLabels"`
		Exemplars []struct {
			Labels map[string]string `json:"labels"`
			Value  float64           `json:"value,string"`
			T      float64           `json:"timestamp"`
		} `json:"exemplars"`
	}
	now := time.Now()
	err = p.ask("/api/v1/query_exemplars", url.Values{
		"query": {expr}, "start": {fmt.Sprint(now.Add(-time.Hour).Unix())}, "end": {fmt.Sprint(now.Add(time.Hour).Unix())},
	}, &found)
	for _, s := range found {
		delete(s.Series, "host")
		for _, e := range s.Exemplars {
			all = append(all, exemplar{s.Series, e.Labels, e.Value, e.T})
		}
	}
	return all, err
}

// TestExemplars checks that the trace id of a DogStatsD line becomes an exemplar when the tile is
// stored. A native histogram has the exemplar whether its values came one by one or in buckets; in a
// classic histogram, the bucket of the measurement has it. Exemplars survive a restart. An invalid
// exemplar is left out, but the rest of its line counts. lua/resty/freshet.lua sends lines with
// exemplars.
func TestExemplars(t *testing.T) {
	t.Parallel() // the test mostly waits for tiles
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	if err := os.WriteFile(file, []byte("mapping: {rules: [{match: classic.*, buckets: [0.1, 1]}]}\n"), 0o644); err !=
		nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--config", file)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	sent := time.Now().UnixMilli()
	line := func(text string, value float64, ms int64) string {
		return fmt.Sprintf("%s|x:%s,%v,%d", text, trace, value, ms)
	}
	sendOne(t, p,
		line("one.by.one:0.25:4|d|#route:cart", 0.25, sent-5),
		"one.by.one:0.5|d|#route:cart",
		line("in.buckets:h3,1.75,0;-31,2,0,1;-20,4|nh|#route:cart", 0.175, sent),
		line("classic.time:0.5|ms|#route:cart", 0.5, sent),
		"bad.one:1|d|x:"+trace+",fast,1",
		line("no.measurement:1|c", 1, sent),
	)
	want := func(name string, value float64, ms int64, more ...string) []exemplar {
		series := map[string]string{"__name__": name, "route": "cart"}
		for i := 0; i < len(more); i += 2 {
			series[more[i]] = more[i+1]
		}
		return []exemplar{{series, map[string]string{"trace_id": trace}, value, float64(ms) / 1000}}
	}
	check := func() error {
		for expr, want := range map[string][]exemplar{
			"one_by_one": want("one_by_one", 0.25, sent-5),
			"histogram_quantile(0.99, sum by (route) (rate(in_buckets[1m])))": want("in_buckets", 0.175, sent),
			"histogram_quantile(0.99, rate(classic_time_bucket[1m]))":         want("classic_time_bucket", 0.5, sent, "le", "1"),
			`{__name__=~"bad_one|no_measurement|classic_time_(sum|count)"}`:   nil,
		} {
			if got, err := p.exemplars(expr); err != nil || !reflect.DeepEqual(got, want) {
				return fmt.Errorf("exemplars of %s: %v, %+v; want %+v", expr, err, got, want)
			}
		}
		return nil
	}
	eventually(t, 30*time.Second, "the exemplars are stored", check)
	for expr, want := range map[string]float64{
		`histogram_count(one_by_one)`: 3, `histogram_count(in_buckets)`: 7, `classic_time_bucket{le="1"}`: 1,
		`histogram_count(bad_one)`: 1, `no_measurement`: 1,
	} {
		if got, err := p.value(expr); err != nil || got != want {
			t.Errorf("%s = %v, want %v (%v)", expr, got, want, err)
		}
	}
	for name, want := range map[string]float64{
		"freshet_dogstatsd_exemplars_total": 3, "freshet_dogstatsd_refused_exemplars_total": 0,
		"freshet_dogstatsd_bad_fields_total":     1,
		"freshet_dogstatsd_unknown_fields_total": 1, "freshet_dogstatsd_malformed_lines_total": 0,
		"freshet_store_exemplars_stored_total": 3, "freshet_store_exemplars_not_kept_total": 0,
	} {
		if got, err := p.ownMetric(name); err != nil || got != want {
			t.Errorf("%s = %v, want %v (%v)", name, got, want, err)
		}
	}
	p.terminate(t)
	p = start(t, dir, "--config", file)
	if err := check(); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
