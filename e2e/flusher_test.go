package e2e

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// flusher stands in for StatsD and the Datadog Agent, which no Go module contains. As their manuals say, it aggregates
// lines between two flushes. It shows the values of the last flush to a Prometheus, under the names of both.
type flusher struct {
	mu     sync.Mutex
	since  time.Time
	counts map[string]float64
	gauges map[string]float64
	timers map[string][]float64
	page   string
}

const flushEvery = 10 * time.Second

// startFlusher returns a flusher, and the address of its page.
func startFlusher(t *testing.T) (f *flusher, address string) {
	f = &flusher{since: time.Now()}
	f.reset()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, _ = w.Write([]byte(f.page))
	}))
	t.Cleanup(s.Close)
	return f, strings.TrimPrefix(s.URL, "http://")
}

func (f *flusher) reset() {
	f.counts, f.gauges, f.timers = map[string]float64{}, map[string]float64{}, map[string][]float64{}
}

// take adds the lines whose names begin with web.
func (f *flusher) take(lines []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range strings.Lines(string(lines)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		var v float64
		var kind string
		if n, _ := fmt.Sscanf(strings.ReplaceAll(rest, "|", " "), "%g %s", &v, &kind); n != 2 ||
			!strings.HasPrefix(name, "web.") {
			continue
		}
		name = strings.ReplaceAll(name, ".", "_")
		switch kind {
		case "c":
			f.counts[name] += v
		case "g":
			f.gauges[name] = v
		case "h":
			f.timers[name] = append(f.timers[name], v)
		}
	}
	if passed := time.Since(f.since); passed >= flushEvery {
		f.flush(passed.Seconds())
		f.since = time.Now()
		f.reset()
	}
}

// flush writes the page. A flush that comes late counts as one that came in time.
func (f *flusher) flush(seconds float64) {
	var b strings.Builder
	say := func(name string, v float64) { fmt.Fprintf(&b, "%s %v\n", name, v) }
	perFlush := flushEvery.Seconds() / seconds
	for name, n := range f.counts {
		say("stats_counters_"+name+"_count", n*perFlush)
		say("stats_counters_"+name+"_rate", n/seconds)
	}
	for name, v := range f.gauges {
		say("stats_gauges_"+name, v)
	}
	for name, all := range f.timers {
		slices.Sort(all)
		n := float64(len(all))
		at := func(q float64) float64 { return all[int(math.Round(q*n))-1] }
		total, squares := 0.0, 0.0
		for _, v := range all {
			total += v
			squares += v * v
		}
		average := total / n
		for suffix, v := range map[string]float64{"mean": average, "median": at(.5), "upper": all[len(all)-1],
			"lower": all[0], "upper_90": at(.9), "count": n * perFlush, "count_ps": n / seconds, "sum": total * perFlush,
			"std": math.Sqrt(squares/n - average*average)} {
			say("stats_timers_"+name+"_"+suffix, v)
		}
		for suffix, v := range map[string]float64{"avg": average, "median": at(.5), "max": all[len(all)-1],
			"95percentile": at(.95), "count": n / seconds} {
			say(name+"_"+suffix, v)
		}
	}
	f.page = b.String()
}

// webLines returns the lines of a tenth of a second that the flusher takes, too.
func webLines(i int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "web.hits:%d|c\nweb.load:%d|g\n", 3+i%3, 50+i%2)
	for v := range 10 {
		fmt.Fprintf(&b, "web.time:%d|h\n", 100+(7*i+37*v)%100)
	}
	return []byte(b.String())
}
