package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// In a short run, queries find every acknowledged sample, including samples of the history, and each
// panel gets an answer. The test measures Freshet, Freshet again as if it were a peer, and a peer that
// does not start. Times do not matter here.
func TestWritesBesideDashboards(t *testing.T) {
	l := serverLab(t)
	ours := l.databases()[0]
	peer, broken := ours, ours
	peer.name, peer.group = "a peer", report.Peer
	broken.name, broken.group = "a broken peer", report.Peer
	broken.start = func(context.Context, string) (*runningDatabase, error) { return nil, errors.New("no such library") }
	plan := dashboardPlan{
		series: 200, history: 40, interval: 15 * time.Second, historyBatch: 100,
		rate: 200, batch: 20, connections: 2, dashboards: 5, every: 400 * time.Millisecond,
		warmUp: 300 * time.Millisecond, alone: 700 * time.Millisecond, beside: 1200 * time.Millisecond, settles: time.Second,
	}
	part := plan.part(l)
	all := []database{peer, broken, ours}
	if err := l.progress.run(t.Context(), l.dashboardStepsOf(part, plan, 1, all, all)); err != nil {
		t.Fatal(err)
	}
	if len(part.Databases) != 2 || part.Databases[0].Name != "a peer" || part.Databases[1].Name != "Freshet" {
		t.Fatalf("measured %+v", part.Databases)
	}
	for _, c := range part.Databases {
		if c.Acknowledged < 200*(40+1) || c.Lost() != 0 {
			t.Errorf("%s: %d samples were acknowledged, but queries find %d", c.Name, c.Acknowledged, c.Found)
		}
		// Each dashboard is refreshed at least once before the end.
		if want := uint64(5 * part.Panels); c.Queries < want || c.Refused+c.Failed+c.Empty != 0 {
			t.Errorf("%s: %d queries were answered, want %d or more; %d were refused, %d failed, %d empty, want "+
				"none: %s",
				c.Name, c.Queries, want, c.Refused, c.Failed, c.Empty, c.Why)
		}
		for what, values := range map[string][]float64{
			"p50 alone": c.Alone.P50, "p99 alone": c.Alone.P99, "longest alone": c.Alone.Longest,
			"freshness alone": c.Alone.Fresh, "CPU alone": c.Alone.CPU,
			"p50": c.Beside.P50, "p99": c.Beside.P99, "longest": c.Beside.Longest, "freshness": c.Beside.Fresh,
			"CPU":            c.Beside.CPU,
			"p50 of queries": c.QueryP50, "p99 of queries": c.QueryP99,
		} {
			if len(values) != 1 || values[0] <= 0 {
				t.Errorf("%s: %s has the values %v, want one above 0", c.Name, what, values)
			}
		}
		if len(c.Others) != 1 || c.Repeated != 0 {
			t.Errorf("%s: the shares of other processes are %v, want one value; the run was repeated %d times, want 0",
				c.Name, c.Others, c.Repeated)
		}
	}
	if left := strings.Join(l.results.LeftOut, "\n"); len(l.results.LeftOut) != 1 ||
		!strings.Contains(left, "start a broken peer: no such library") {
		t.Errorf("left out %q", left)
	}
}

// The plan of the published page is consistent: a round is a whole number of requests and takes a whole
// number of milliseconds, and every dashboard is refreshed in the measured time.
func TestStandardDashboards(t *testing.T) {
	p := standardDashboards()
	if p.series%p.batch != 0 || p.series%p.historyBatch != 0 || 1000*p.series%int(p.rate) != 0 {
		t.Errorf("a round is not made of whole requests or milliseconds: %+v", p)
	}
	if p.every > p.beside || p.warmUp < p.every {
		t.Errorf("the warm-up or the measured time is too short to refresh every dashboard: %+v", p)
	}
	if time.Duration(p.history)*p.interval < longSpan {
		t.Errorf("panels show %v, but the history is only %v", longSpan, time.Duration(p.history)*p.interval)
	}
}

// A run counts if other processes took little time. After too many tries, the least disturbed try
// counts.
func TestDisturbedRunsAreMeasuredAgain(t *testing.T) {
	for name, c := range map[string]struct {
		others   []float64 // share of other processes in each try
		repeats  int
		best     int // the try that counts
		repeated int
	}{
		"a quiet machine":                  {[]float64{.01}, 2, 0, 0},
		"exactly the allowed share":        {[]float64{othersAtMost}, 2, 0, 0},
		"disturbed once":                   {[]float64{.2, .03}, 2, 1, 1},
		"always, and most in the last try": {[]float64{.2, .1, .3}, 2, 1, 2},
		"no repeats are allowed":           {[]float64{.9}, 0, 0, 0},
	} {
		tries := 0
		best, others, repeated, err := undisturbed(t.Context(), c.repeats, func(context.Context) (int, float64, error) {
			tries++
			return tries - 1, c.others[tries-1], nil
		})
		if err != nil || best != c.best || others != c.others[c.best] || repeated != c.repeated || tries != len(c.others) {
			t.Errorf("%s: the result is from try %d of %d, with the share %v of other processes, after %d repeats, "+
				"error %v; want try %d",
				name, best, tries, others, repeated, err, c.best)
		}
	}
	cause := errors.New("does not start")
	if _, _, _, err := undisturbed(t.Context(), 2,
		func(context.Context) (int, float64, error) { return 0, 1, cause }); !errors.Is(err, cause) {
		t.Errorf("for a run that fails, got the error %v, want %v", err, cause)
	}
}

// The time of other processes is all processor time except the time of the lab and of the measured
// processes. Interrupts and idle time do not count.
func TestTimeOfOtherProcesses(t *testing.T) {
	at := func(stat string, ours time.Duration) used {
		p, err := readProcessors(stat)
		if err != nil {
			t.Fatal(err)
		}
		return used{p, ours}
	}
	before := at("cpu  100 10 50 800 5 1 5 40 0 0\n", 2*time.Second)
	for name, c := range map[string]struct {
		stat string
		ours time.Duration
		want float64
	}{
		"nobody else":                     {"cpu  140 10 60 950 5 1 5 40 0 0\n", 500 * time.Millisecond, 0},
		"another process, and a nice one": {"cpu  140 30 60 930 5 1 5 40 0 0\n", 300 * time.Millisecond, .2},
		"another machine":                 {"cpu  140 10 60 920 5 1 5 70 0 0\n", 500 * time.Millisecond, .15},
		"interrupts":                      {"cpu  140 10 60 900 15 11 35 40 0 0\n", 500 * time.Millisecond, 0},
		"less than nothing, by the ticks": {"cpu  140 10 60 950 5 1 5 40 0 0\n", 600 * time.Millisecond, 0},
		"no time":                         {"cpu  100 10 50 800 5 1 5 40 0 0\n", 0, 0},
	} {
		if got := at(c.stat, 2*time.Second+c.ours).othersSince(before); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s: other processes took %v, want %v", name, got, c.want)
		}
	}
}

// Each answer to a query is counted as what it is: empty, refused, failed or good.
func TestQueriesOfADashboardAreCounted(t *testing.T) {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("query") == "" || r.FormValue("start") >= r.FormValue("end") || r.FormValue("step") == "" {
			t.Errorf("the query has the parameters %v, want a query, a start before the end, and a step", r.Form)
		}
		switch n.Add(1) {
		case 1:
			_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},` +
				`"values":[[1,"1"]]}]}}`))
		case 2:
			_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"matrix","result":[]}}`))
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 4:
			w.WriteHeader(http.StatusUnprocessableEntity)
		case 5:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	defer s.Close()
	var a answered
	d := dashboards(1, s.URL, "shop", time.Millisecond, 1)[0]
	if err := d.refresh(t.Context(), time.Now(), time.Hour, 0, 50*time.Millisecond, &a); err != nil {
		t.Fatal(err)
	}
	if len(a.took) != 2 || a.empty != 1 || a.refused != 2 || a.failed != 2 || a.why == "" {
		t.Errorf("counted %d answers, %d of them empty, %d refused, %d failed, %q; want 2, 1, 2, 2 and a cause",
			len(a.took), a.empty, a.refused, a.failed, a.why)
	}
}

// A refresh that takes longer than the interval delays the next refresh. Refreshes that are missed in this
// way are left out.
func TestSlowRefreshesDelayTheNext(t *testing.T) {
	const every, end = 100 * time.Microsecond, 20 * time.Millisecond
	begun := time.Now()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(time.Until(begun.Add(end))) // the first refresh waits until the end
		_, _ = w.Write([]byte(`{}`))
	}))
	defer s.Close()
	var a answered
	d := dashboards(1, s.URL, "shop", every, 1)[0]
	if err := d.refresh(t.Context(), begun, every, 0, end, &a); err != nil {
		t.Fatal(err)
	}
	if a.delayed == 0 || len(a.took) != 2*len(d.panels) {
		t.Errorf("got %d delayed refreshes and %d answered queries, want at least one delayed refresh, and the "+
			"queries of two refreshes",
			a.delayed, len(a.took))
	}
}

// With the same seed, every database gets its refreshes at the same times.
func TestDashboardsOfASeed(t *testing.T) {
	phases := func(seed uint64) (all []time.Duration) {
		for _, d := range dashboards(10, "http://127.0.0.1", "shop", 5*time.Second, seed) {
			if d.phase < 0 || d.phase >= 5*time.Second {
				t.Errorf("the first refresh comes after %v, want less than 5s", d.phase)
			}
			all = append(all, d.phase)
		}
		return all
	}
	one, same, other := phases(1), phases(1), phases(2)
	differ := false
	for i := range one {
		if one[i] != same[i] {
			t.Errorf("dashboard %d is first refreshed after %v, but with the same seed after %v", i, one[i], same[i])
		}
		differ = differ || one[i] != other[i]
	}
	if !differ {
		t.Error("with another seed, the dashboards are refreshed at the same times")
	}
}
