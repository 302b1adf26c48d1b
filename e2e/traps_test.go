package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// These tests are about faults that took other systems down, or made them give wrong answers. Some
// tests of such faults are elsewhere, nearer to the code:
//
//   - A flush continues as if its state had been saved: see TestFullDisk, and in the aggregator
//     TestAJournalThatCannotBeWrittenRefusesTheWindow and TestAStoreThatIsDownLosesNothing.
//   - Two kinds under one name are folded into the first: see the collector's
//     TestTrapTwoKindsUnderOneNameAreKeptApart.
//   - A request succeeds although the queue is full: TestKillRounds shows with kill -9 that a window
//     is acknowledged only once it is journalled.
//   - A scrape blocks the readers: the collector's readers publish their counts once a window, and
//     share a lock with a scrape only while they copy the counts. TestAReaderNeverWaitsForTheFlusher
//     shows the same for the flusher.

// sendOne sends one datagram to the Unix socket, which loses none.
func sendOne(t *testing.T, p *process, lines ...string) {
	t.Helper()
	c := dialTap(t, "unixgram", p.Unixgram)
	if _, err := io.WriteString(c, strings.Join(lines, "\n")); err != nil {
		t.Fatal(err)
	}
}

// An unknown field of a line costs nothing. statsd_exporter and veneur refused a whole sample because
// of one field that they did not know, so the upgrade of a client silenced its metrics (trap 1).
func TestTrapUnknownFieldCostsNothing(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	p := start(t, dataDir(t))
	sendOne(t, p, "trap.unknown:3|c|zz:9|#a:b|@0.5|future", "trap.unknown:1|g|#kind:gauge|q:{}",
		"trap.unknown.timer:5|ms|x|#a:b")
	expectSoon(t, p, `trap_unknown{a="b"}`, 6)
	expectSoon(t, p, `trap_unknown_gauge{kind="gauge"}`, 1)
	expectSoon(t, p, `histogram_count(trap_unknown_timer{a="b"})`, 1)
	if n, err := p.ownMetric("freshet_dogstatsd_unknown_fields_total"); err != nil || n != 4 {
		t.Errorf("%v unknown fields are counted, want 4; error %v", n, err)
	}
	if n, err := p.ownMetric("freshet_dogstatsd_malformed_lines_total"); err != nil || n != 0 {
		t.Errorf("%v lines are counted as malformed, want 0; error %v", n, err)
	}
}

// Tags may be in any field. Vector lost tags behind another field (trap 2).
func TestTrapTagsStandAnywhere(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	p := start(t, dataDir(t))
	for i, fields := range []string{"@0.5|#a:b", "#a:b|@0.5", "c:ci-1|@0.5|#a:b", "e:it-false,cn-x|card:low|#a:b|@0.5",
		"@0.5|c:ci-1|#a:b|card:none", "@0.5|zz|#a:b"} {
		sendOne(t, p, fmt.Sprintf("trap.tags%d:1|c|%s", i, fields))
		expectSoon(t, p, fmt.Sprintf(`trap_tags%d{a="b"}`, i), 2)
	}
}

// A metric of several types affects no other metric. In statsd_exporter, a metric whose type changed
// made /metrics answer 500 (trap 8). Freshet keeps its own metrics apart from clients' metrics, so
// even metrics with the same names do not collide.
func TestTrapTypeConflictHarmsNobodyElse(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	p := start(t, dataDir(t))
	names := []string{"x", "freshet_dogstatsd_packets_total", "go_goroutines", "process_open_fds", "up"}
	var lines []string
	for _, name := range names {
		lines = append(lines, name+":1|c", name+":2|g", name+":3|ms", name+":4|s", "_sc|"+name+"|1")
	}
	sendOne(t, p, append(lines, "innocent:1|c")...)
	expectSoon(t, p, "innocent", 1)
	for _, name := range names {
		for expr, want := range map[string]float64{
			name: 1, name + "_gauge": 2, "histogram_sum(" + name + "_timer)": 3, name + "_check": 1,
			"max_over_time(" + name + "_set[1m])": 1, // a set is of one tile, which may be over
		} {
			expectSoon(t, p, expr, want)
		}
	}
	body, err := p.get("/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(body), "innocent") || strings.Contains(string(body), "go_goroutines_gauge") {
		t.Error("metrics of clients are among Freshet's own metrics")
	}
	if n, err := p.ownMetric("freshet_dogstatsd_packets_total"); err != nil || n != 1 {
		t.Errorf("%v packets are counted, want 1; error %v", n, err)
	}
}

// `rate` and `increase` see the first increment of a series, in the open tile and in the stored one.
// Prometheus cannot compare the first value with an earlier one, and so shows nine of the first ten
// requests after a deployment (trap 9). Freshet puts a zero before the first tile.
func TestTrapFirstIncrementIsSeen(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	p := start(t, dataDir(t))
	if end := time.Now().Truncate(tileWidth).Add(tileWidth); time.Until(end) < 6*time.Second {
		reach(end) // the next tile stays open long enough to query it
	}
	end := time.Now().Truncate(tileWidth).Add(tileWidth)
	sendOne(t, p, "trap.first:7|c", "trap.timer:5:6|ms")
	check := func(when string, limit time.Duration) {
		t.Helper()
		for _, c := range []struct {
			expr string
			want float64
		}{
			{"increase(trap_first[1m] anchored)", 7}, {"trap_first", 7},
			{"histogram_count(increase(trap_timer[1m] anchored))", 2},
			// `rate` and `increase` without `anchored` extrapolate as in Prometheus, but see the first
			// increment.
			{"rate(trap_first[1m]) > bool 0", 1}, {"increase(trap_first[1m]) >= bool 7", 1},
			{"histogram_count(rate(trap_timer[1m])) > bool 0", 1},
		} {
			eventually(t, limit, when+": "+c.expr, func() error { return p.expect(c.expr, c.want, 0) })
		}
	}
	check("open", time.Until(end)) // the tile is stored at least 2 s after its end
	reach(end.Add(8 * time.Second))
	check("stored", 20*time.Second)
	// A later increment adds only itself.
	sendOne(t, p, "trap.first:4|c")
	expectSoon(t, p, "increase(trap_first[1m] anchored)", 11)
	p.terminate(t)
	p = start(t, p.dataDir)
	expectSoon(t, p, "increase(trap_first[1m] anchored)", 11)
}

// A query at the beginning of the epoch is answered. Grafana's health check queries 1+1 at the fourth
// second of the epoch. In Grafana, a server that refused times older than its retention was "down"
// (trap 11).
func TestTrapHealthQueryAtEpoch(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	p := start(t, dataDir(t))
	params := url.Values{"query": {"1+1"}, "time": {"4"}}
	for method, ask := range map[string]func(string) (*http.Response, error){
		"GET":  func(u string) (*http.Response, error) { return http.Get(u + "?" + params.Encode()) },
		"POST": func(u string) (*http.Response, error) { return http.PostForm(u, params) },
	} {
		r, err := ask("http://" + p.HTTP + "/api/v1/query")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if want := `{"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}`; err != nil ||
			strings.TrimSpace(string(body)) != want {
			t.Errorf("by %s: %s: %s", method, r.Status, body)
		}
	}
}

// Two kinds under one name are two series. The Datadog Agent silently folds a second type of a
// context into the first, so that a gauge of 1,000,000 became an increment (trap 13).
func TestTrapTwoKindsAreNotFolded(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	p := start(t, dataDir(t))
	sendOne(t, p, "trap.kinds:1|c|#a:b", "trap.kinds:1000000|g|#a:b", "trap.kinds:1|c|#a:b", "trap.kinds:77|ms|#a:b")
	check := func() {
		t.Helper()
		expectSoon(t, p, `trap_kinds{a="b"}`, 2)
		expectSoon(t, p, `trap_kinds_gauge{a="b"}`, 1e6)
		expectSoon(t, p, `histogram_sum(trap_kinds_timer{a="b"})`, 77)
	}
	check()
	told := func() int {
		return strings.Count(p.output.String(), "two kinds have the same name; they are stored under different names")
	}
	if n := told(); n != 2 {
		t.Errorf("the conflict is logged %d times, want once for the gauge and once for the timer", n)
	}
	// After a restart the counter keeps the name, even if the gauge now comes first.
	p.terminate(t)
	p = start(t, p.dataDir)
	sendOne(t, p, "trap.kinds:1000001|g|#a:b", "trap.kinds:1|c|#a:b")
	expectSoon(t, p, `trap_kinds{a="b"}`, 3)
	expectSoon(t, p, `trap_kinds_gauge{a="b"}`, 1_000_001)
}

// A client that sends samples of next year does no harm. If a TSDB accepted one such sample, it would
// refuse the present samples of all other series.
func TestTrapFarFutureSpoilsNothing(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	p := start(t, dataDir(t))
	future := time.Now().AddDate(1, 0, 0).Unix()
	sendOne(t, p, fmt.Sprintf("trap.future:1|g|T%d", future), fmt.Sprintf("trap.future.count:1|c|T%d", future),
		fmt.Sprintf("_sc|trap.check|1|d:%d", future), "trap.present:1|c", "trap.present.gauge:5|g")
	reach(time.Now().Truncate(tileWidth).Add(tileWidth + 8*time.Second)) // everything is stored
	sendOne(t, p, "trap.present:1|c", "trap.present.gauge:6|g", "trap.new:1|c")
	for expr, want := range map[string]float64{
		"trap_present": 2, "increase(trap_present[5m] anchored)": 2, "trap_present_gauge": 6, "trap_new": 1,
	} {
		expectSoon(t, p, expr, want)
	}
	end := time.Now().Truncate(tileWidth).Add(tileWidth)
	reach(end.Add(8 * time.Second))
	// At the end of the tile only the store has samples.
	for name, want := range map[string]float64{"trap_present": 2, "trap_present_gauge": 6, "trap_new": 1} {
		expectSoon(t, p, fmt.Sprintf("%s @ %d", name, end.Unix()), want)
	}
	if n, err := p.ownMetric("freshet_aggregator_store_errors_total"); err != nil || n != 0 {
		t.Errorf("the store refused %v writes, want none; error %v", n, err)
	}
}
