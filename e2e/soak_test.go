package e2e

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// soakPlan says how long a soak test lasts, how fast it sends, and to how many contexts.
type soakPlan struct {
	time     time.Duration
	rate     int // samples per second
	contexts int
	sample   time.Duration // between two measurements of memory
}

func planSoak(t *testing.T) soakPlan {
	t.Helper()
	plan := soakPlan{15 * time.Second, 5000, 2000, 500 * time.Millisecond}
	if soak {
		plan = soakPlan{10 * time.Minute, 20_000, 50_000, 10 * time.Second}
	}
	if text := os.Getenv("FRESHET_SOAK_TIME"); text != "" {
		// This duration replaces the 10 min of the long version. It must be at least 5 min, since stores fill
		// for 4 min.
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("FRESHET_SOAK_TIME = %s is not a duration; write one like 10m", text)
		}
		plan = soakPlan{d, 20_000, 50_000, min(d/12, 10*time.Second)}
	}
	return plan
}

// TestSoak checks that memory does not grow with time, and that the totals at the end are exact. It
// sends at a moderate rate to contexts of every kind, all of which stay in use.
//
// 15 s and 2,000 contexts in CI; 10 min, 50,000 contexts and 20,000 samples/s in
// `make soak`.
func TestSoak(t *testing.T) {
	t.Parallel() // it mostly waits for tiles
	plan := planSoak(t)
	p := start(t, dataDir(t))
	conn, err := net.Dial("unixgram", p.Unixgram)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	looks := watch(t, p, plan)
	sent := sendSoak(t, conn, plan)
	rows := <-looks
	t.Logf("%d samples in %v to %d contexts\n%s", sent.samples, plan.time, plan.contexts, table(rows))
	checkFlat(t, rows)

	for _, c := range []struct {
		why, expr string
		want      int
	}{
		{"increments", "sum(soak_count)", sent.counters},
		{"timed values", "sum(histogram_count(soak_timer))", sent.timers},
		{"the sum of timed values", "sum(histogram_sum(soak_timer))", sent.timerSum},
		{"gauges, each with its last value", "count(soak_gauge == " + strconv.Itoa(sent.rounds) + ")", plan.contexts / 5},
		{"sets", "count(soak_set)", plan.contexts / 10},
	} {
		eventually(t, 30*time.Second, c.why, func() error { return p.expect(c.expr, float64(c.want), 0) })
	}
	for _, name := range []string{"freshet_dogstatsd_samples_total", "freshet_aggregator_journalled_samples_total"} {
		if n, err := p.ownMetric(name); err != nil || n != float64(sent.samples) {
			t.Errorf("%s is %v, want the %d that were sent; error %v", name, n, sent.samples, err)
		}
	}
	conflicts(t, p)
	p.terminate(t)
}

// soaked counts the rounds, samples and values that were sent.
type soaked struct {
	rounds                              int // each round sends to all contexts
	samples, counters, timers, timerSum int
}

// sendSoak sends to one context after the other, in whole rounds. A write to a Unix datagram socket
// waits while the queue is full, so nothing is lost.
func sendSoak(t *testing.T, conn net.Conn, plan soakPlan) (s soaked) {
	t.Helper()
	var packet []byte
	begun := time.Now()
	for time.Since(begun) < plan.time {
		s.rounds++
		for id := range plan.contexts {
			switch id % 10 {
			case 0, 1, 2, 3, 4:
				packet = fmt.Appendf(packet, "soak.count:1|c|#id:%d,env:prod,service:checkout\n", id)
				s.counters++
			case 5, 6:
				packet = fmt.Appendf(packet, "soak.gauge:%d|g|#id:%d,env:prod,service:checkout\n", s.rounds, id)
			case 7, 8:
				value := 1 + (id*7+s.rounds*13)%500
				packet = fmt.Appendf(packet, "soak.timer:%d|ms|#id:%d,env:prod,service:checkout\n", value, id)
				s.timers++
				s.timerSum += value
			case 9:
				packet = fmt.Appendf(packet, "soak.set:u%d|s|#id:%d,env:prod,service:checkout\n", s.rounds%20, id)
			}
			s.samples++
			if len(packet) < 1300 && id < plan.contexts-1 {
				continue
			}
			if _, err := conn.Write(packet); err != nil {
				t.Fatal(err)
			}
			packet = packet[:0]
			reach(begun.Add(time.Duration(s.samples) * time.Second / time.Duration(plan.rate)))
		}
	}
	return s
}

// look is one measurement of the process.
type look struct {
	at                   time.Duration
	residentKiB, fileKiB int     // all resident memory, and the pages of files in it
	heap, goal, cpu      float64 // bytes, bytes at the next collection, seconds
	series, contexts     float64
	journal, goroutines  float64
}

// watch measures the process until the plan's time is over.
func watch(t *testing.T, p *process, plan soakPlan) <-chan []look {
	out, done := make(chan []look, 1), make(chan struct{})
	t.Cleanup(func() { <-done })
	begun := time.Now()
	go func() {
		defer close(done)
		var rows []look
		defer func() { out <- rows }()
		tick := time.NewTicker(plan.sample)
		defer tick.Stop()
		for time.Since(begun) < plan.time {
			select {
			case <-tick.C:
			case <-t.Context().Done(): // the test has failed meanwhile
				return
			}
			l := look{at: time.Since(begun)}
			var err error
			if l.residentKiB, l.fileKiB, err = resident(p.cmd.Process.Pid); err != nil {
				t.Errorf("memory: %v", err)
				return
			}
			for name, to := range map[string]*float64{
				"go_memstats_heap_alloc_bytes": &l.heap, "go_memstats_next_gc_bytes": &l.goal, "process_cpu_seconds_total": &l.cpu,
				"go_goroutines":             &l.goroutines,
				"freshet_aggregator_series": &l.series, "freshet_dogstatsd_contexts": &l.contexts,
				"freshet_aggregator_journal_bytes": &l.journal,
			} {
				if *to, err = p.ownMetric(name); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
			rows = append(rows, l)
		}
	}()
	return out
}

// resident returns VmRSS and RssFile of a process in KiB.
func resident(pid int) (all, files int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscanf(after(string(status), "VmRSS:"), "%d", &all); err != nil {
		return 0, 0, fmt.Errorf("VmRSS: %w in %s", err, status)
	}
	if _, err := fmt.Sscanf(after(string(status), "RssFile:"), "%d", &files); err != nil {
		return 0, 0, fmt.Errorf("RssFile: %w in %s", err, status)
	}
	return all, files, nil
}

func after(text, key string) string {
	_, rest, _ := strings.Cut(text, key)
	return rest
}

func table(rows []look) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7s %9s %9s %9s %9s %8s %8s %9s %11s %10s\n", "time", "RSS MiB", "files MiB", "heap MiB", "goal MiB",
		"CPU s", "series", "contexts", "journal MiB", "goroutines")
	for _, l := range rows {
		fmt.Fprintf(&b, "%7s %9.1f %9.1f %9.1f %9.1f %8.1f %8.0f %9.0f %11.1f %10.0f\n", l.at.Round(100*time.Millisecond),
			float64(l.residentKiB)/1024,
			float64(l.fileKiB)/1024, l.heap/(1<<20), l.goal/(1<<20), l.cpu, l.series, l.contexts, l.journal/(1<<20),
			l.goroutines)
	}
	return b.String()
}

// checkFlat compares the resident memory in the last third of the time with the memory in the middle
// third. It ignores the first third, in which tables fill and stores open. It allows for some
// megabytes, since each garbage collection changes the memory of a small process by that much.
func checkFlat(t *testing.T, rows []look) {
	t.Helper()
	if len(rows) < 6 {
		t.Fatalf("%d measurements of the process are too few", len(rows))
	}
	third := len(rows) / 3
	middle, last := median(rows[third:2*third]), median(rows[2*third:])
	allowed := max(middle+middle/10, middle+32<<10)
	t.Logf("resident: %d KiB in the middle third, %d KiB in the last: %+.1f %%",
		middle, last, 100*(float64(last)/float64(middle)-1))
	if last > allowed {
		t.Errorf("memory grows: the median is %d KiB in the last third and %d KiB in the middle third", last, middle)
	}
	if a, b := rows[third].goroutines, rows[len(rows)-1].goroutines; b > a+20 {
		t.Errorf("the goroutines grew from %v to %v", a, b)
	}
}

// median is the median of the resident memory, in KiB.
func median(rows []look) int {
	var all []int
	for _, l := range rows {
		all = append(all, l.residentKiB)
	}
	slices.Sort(all)
	return all[len(all)/2]
}
