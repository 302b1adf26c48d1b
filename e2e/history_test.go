package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// scraped starts a Prometheus that scrapes an application for a while. It returns the Prometheus and a time up to which
// it has all samples.
func scraped(t *testing.T, flags ...string) (p *process, until time.Time) {
	t.Helper()
	app := application(t)
	t.Cleanup(app.Close)
	p = startPrometheus(t, fmt.Sprintf(`
global:
  scrape_interval: 250ms
  scrape_native_histograms: true
  external_labels: {cluster: eu} # which a snapshot does not have, and remote read has
scrape_configs:
  - job_name: app
    static_configs: [{targets: [%q]}]
`, strings.TrimPrefix(app.URL, "http://")), flags...)
	eventually(t, startLimit, "20 scrapes", func() error {
		all, err := p.matrix(time.Now())
		if err == nil && longest(all) < 20 {
			err = fmt.Errorf("%d samples", longest(all))
		}
		return err
	})
	return p, time.Now().Add(-time.Second)
}

func longest(all map[string][]string) (n int) {
	for _, samples := range all {
		n = max(n, len(samples))
	}
	return n
}

// has checks that a server answers every sample of a Prometheus, of all its series. `more` is the text of a label that
// each series has on the server in addition, as fmt prints maps.
func (p *process) has(t *testing.T, want map[string][]string, until time.Time, more string) {
	t.Helper()
	got, err := p.matrix(until)
	if err != nil {
		t.Fatal(err)
	}
	labelled := map[string][]string{}
	for series, samples := range got {
		labelled[strings.Replace(series, more, "", 1)] = samples
		if !strings.Contains(series, more) {
			t.Errorf("series %s lacks %q", series, more)
		}
	}
	if len(want) < 10 || !reflect.DeepEqual(labelled, want) {
		t.Errorf("the server has %d series:\n%.1000v\nwant %d:\n%.1000v", len(got), labelled, len(want), want)
	}
}

// A snapshot of a real Prometheus comes along, sample by sample: floats, classic and native histograms. The label that
// its remote write adds to new samples is added to the old ones, too.
func TestImportFromPrometheus(t *testing.T) {
	t.Parallel() // it mostly waits
	prometheus, until := scraped(t, "--web.enable-admin-api")
	want, err := prometheus.matrix(until)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+prometheus.HTTP+"/api/v1/admin/tsdb/snapshot", "", nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("snapshot: %v, %v", resp, err)
	}
	resp.Body.Close()
	found, err := filepath.Glob(filepath.Join(prometheus.dataDir, "snapshots", "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the snapshots are %q: %v", found, err)
	}
	p := start(t, dataDir(t))
	args := []string{"import", "tsdb", found[0], "--label", "cluster=eu", "--server", "http://" + p.HTTP}
	if told := runFreshet(t, args...); !strings.Contains(told, "Imported 1 block with ") {
		t.Errorf("the output of import:\n%s", told)
	}
	p.has(t, want, until, " cluster:eu")
	if told := runFreshet(t, args...); !strings.Contains(told, "Imported 0 blocks with 0 samples, 0 B") ||
		!strings.Contains(told, "; 1 known before") {
		t.Errorf("the output of the same import again:\n%s", told)
	}
}

// What a real Prometheus answers to remote read comes along, sample by sample, with its external labels. A second run
// finds it there. Freshet's export of it is opened by another Prometheus, which answers the same.
func TestImportByRemoteReadAndExport(t *testing.T) {
	t.Parallel() // it mostly waits
	prometheus, until := scraped(t)
	want, err := prometheus.matrix(until)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, dataDir(t))
	server := []string{"--server", "http://" + p.HTTP}
	span := []string{"--from", fmt.Sprint(until.Add(-10 * time.Minute).Unix()), "--to", fmt.Sprint(until.Unix() + 1)}
	args := slices.Concat([]string{"import", "remote-read", prometheus.HTTP}, span, server)
	if told := runFreshet(t, args...); !strings.Contains(told, " series compared") || strings.Contains(told, "failed") {
		t.Errorf("the output of import:\n%s", told)
	}
	p.has(t, want, until, " cluster:eu")
	if told := runFreshet(t, args...); !strings.Contains(told, "Imported 0 blocks with 0 samples") {
		t.Errorf("the output of the same import again:\n%s", told)
	}
	mustFail(t, "check the URL: http://"+p.HTTP+"/nowhere/api/v1/read was asked",
		slices.Concat([]string{"import", "remote-read", p.HTTP + "/nowhere"}, span, server)...)

	dir := dataDir(t)
	args = slices.Concat([]string{"export", dir, "--match", `{job="app"}`}, span, server)
	if told := runFreshet(t, args...); !strings.Contains(told, fmt.Sprintf("%d series, ", len(want))) {
		t.Errorf("the output of export:\n%s", told)
	}
	if told := runFreshet(t, args...); !strings.Contains(told, "was exported before") {
		t.Errorf("the output of the same export again:\n%s", told)
	}
	startPrometheusIn(t, dir, "").has(t, want, until, " cluster:eu")
}

// years is a time in the middle of a block, years older than any retention, in Unix milliseconds.
var years = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// oldBlock writes a block as Prometheus does: in two hours from `hour` on, each of a number of series has a sample
// every minute, of 0 to 119.
func oldBlock(t *testing.T, dir string, hour, series int) {
	t.Helper()
	oldBlockFrom(t, dir, hour, series, 0)
}

// oldBlockFrom does the same with values that begin at `first`.
func oldBlockFrom(t *testing.T, dir string, hour, series int, first float64) {
	t.Helper()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 2*time.Hour.Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	app := w.Appender(t.Context())
	for s := range series {
		ls := labels.FromStrings("__name__", "old", "series", fmt.Sprint(s))
		for minute := range 120 {
			at := years + (time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute).Milliseconds()
			if _, err := app.Append(0, ls, at, first+float64(minute)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// olds asks how many old samples a server has, up to an hour.
func (p *process) olds(hour int) (float64, error) {
	var data struct{ Result []result }
	at := years/1000 + int64(hour)*3600
	err := p.ask("/api/v1/query", url.Values{"query": {"sum(count_over_time(old[30d]))"}, "time": {fmt.Sprint(at)}}, &data)
	if err != nil || len(data.Result) == 0 {
		return 0, err
	}
	return data.Result[0].Value.V, nil
}

// The server is killed again and again while blocks come in. Each time the command is run again it goes on, and at the
// end every sample is there once, and no part of a block.
func TestImportIsKilled(t *testing.T) {
	t.Parallel()
	const blocks, series = 8, 2000
	source := t.TempDir()
	for b := range blocks {
		oldBlock(t, source, 2*b, series)
	}
	dir := dataDir(t)
	p := start(t, dir)
	history := filepath.Join(dir, "tsdb", "default", "history")
	for _, stored := range []int{1, 3, 6} {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, freshet, "import", "tsdb", source, "--server", "http://"+p.HTTP)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, startLimit, fmt.Sprintf("%d blocks are imported", stored), func() error {
			whole, err := filepath.Glob(filepath.Join(history, "01*"))
			if err == nil && len(whole) < stored {
				err = fmt.Errorf("%d are", len(whole))
			}
			return err
		})
		p.kill(t)
		_ = cmd.Wait() // it fails, unless it was done before
		cancel()
		p = start(t, dir)
	}
	told := runFreshet(t, "import", "tsdb", source, "--server", "http://"+p.HTTP)
	if n, err := p.olds(24); err != nil || n != blocks*series*120 {
		t.Errorf("the server has %v samples, want %d; %v\n%s", n, blocks*series*120, err, told)
	}
	p.terminate(t)
	p = start(t, dir)
	if n, err := p.olds(24); err != nil || n != blocks*series*120 {
		t.Errorf("after a restart the server has %v samples, want %d; %v", n, blocks*series*120, err)
	}
	if parts, err := os.ReadDir(filepath.Join(history, "..", "history.new")); err == nil && len(parts) > 0 ||
		err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("parts are left: %v, %v", parts, err)
	}
}

// A damaged block is named, and the others are imported. What was imported can be listed and removed. With
// --tenant, these commands see the blocks and samples of that tenant alone.
func TestImportOfDamage(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	for b := range 3 {
		oldBlock(t, source, 2*b, 10)
	}
	found, err := filepath.Glob(filepath.Join(source, "01*"))
	if err != nil || len(found) != 3 {
		t.Fatalf("wrote the blocks %q: %v", found, err)
	}
	damaged := filepath.Base(found[1])
	path := filepath.Join(found[1], "chunks", "000001")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 20; i < len(text); i += 20 {
		text[i] ^= 0xff
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, dataDir(t))
	server := []string{"--server", "http://" + p.HTTP}
	told := mustFail(t, "1 block not imported: "+damaged, append([]string{"import", "tsdb", source}, server...)...)
	if !strings.Contains(told, damaged+"  failed: ") || !strings.Contains(told, "Imported 2 blocks with 2400 samples") {
		t.Errorf("the output of import:\n%s", told)
	}
	if n, err := p.olds(24); err != nil || n != 2400 {
		t.Errorf("the server has %v samples, want 2400: %v", n, err)
	}
	listed := runFreshet(t, append([]string{"import", "list"}, server...)...)
	if strings.Contains(listed, damaged) || strings.Count(listed, "2020-01-01") != 4 {
		t.Errorf("the list is\n%s", listed)
	}
	runFreshet(t, append([]string{"import", "remove", filepath.Base(found[0])}, server...)...)
	if n, err := p.olds(24); err != nil || n != 1200 {
		t.Errorf("after a removal the server has %v samples, want 1200: %v", n, err)
	}
	mustFail(t, "the history has no such block", append([]string{"import", "remove", damaged}, server...)...)

	ofB := t.TempDir() // the same names and times as the block that is left
	oldBlockFrom(t, ofB, 4, 10, 1000)
	toB := append([]string{"--tenant", "b"}, server...)
	runFreshet(t, append([]string{"import", "tsdb", ofB}, toB...)...)
	if listed := runFreshet(t, append([]string{"import", "list"}, toB...)...); strings.Count(listed, "2020-01-01") != 2 {
		t.Errorf("the list of tenant b is\n%s", listed)
	}
	mustFail(t, "the history has no such block",
		append([]string{"import", "remove", filepath.Base(found[2])}, toB...)...)
	for _, c := range []struct {
		of, want string
		server   []string
	}{
		{"the default tenant", "1200 samples of 0 to 119", server},
		{"tenant b", "1200 samples of 1000 to 1119", toB},
	} {
		dir := t.TempDir()
		runFreshet(t, append([]string{"export", dir, "--from", "2020-01-01T00:00:00Z", "--to", "2020-01-02T00:00:00Z"},
			c.server...)...)
		if got := samplesOf(t, dir); got != c.want {
			t.Errorf("the export of %s has %s, want %s", c.of, got, c.want)
		}
	}
}

// samplesOf says how many samples the only block in a directory has, and between which values.
func samplesOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the directory has the blocks %q: %v", found, err)
	}
	b, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), found[0], nil, nil)
	check(t, err)
	defer b.Close()
	q, err := tsdb.NewBlockQuerier(b, math.MinInt64, math.MaxInt64)
	check(t, err)
	defer q.Close()
	n, low, high := 0, math.Inf(1), math.Inf(-1)
	all := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "old"))
	for all.Next() {
		it := all.At().Iterator(nil)
		for it.Next() == chunkenc.ValFloat {
			_, v := it.At()
			n, low, high = n+1, min(low, v), max(high, v)
		}
		check(t, it.Err())
	}
	check(t, all.Err())
	return fmt.Sprintf("%d samples of %v to %v", n, low, high)
}
