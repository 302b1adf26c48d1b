package e2e

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// flood sends lines at a rate, in datagrams of about 1,300 bytes, and returns after the last line.
// `line` appends line number i to a datagram.
func flood(t *testing.T, network, address string, lines, rate int, line func(packet []byte, i int) []byte) {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begun := time.Now()
	var packet []byte
	for i := range lines {
		packet = line(packet, i)
		if len(packet) < 1200 && i < lines-1 {
			continue
		}
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
		packet = packet[:0]
		reach(begun.Add(time.Duration(i) * time.Second / time.Duration(rate)))
	}
}

// unique returns a function that appends lines of a counter, each with a new label
// value.
func unique(metric string) func([]byte, int) []byte {
	return func(packet []byte, i int) []byte {
		return fmt.Appendf(packet, "%s:1|c|#env:prod,request:%08x-1f2e-4d3c-8b7a-0123456789ab\n", metric, i)
	}
}

// TestAFloodOfLabels checks that a flood of unique labels harms no other series. It sends one flood over
// UDP and one to a Unix socket. The totals are exact. Within ten seconds, the sender's name is in the
// log and in a metric. After the flood, new series get places again.
func TestAFloodOfLabels(t *testing.T) {
	const lines, perMetric = 20_000, 50
	const udpLines = 5000 // 75 datagrams, which fit any receive buffer
	p := start(t, dataDir(t), "--limits-max-series-per-metric", strconv.Itoa(perMetric))
	sent := map[string]int{}
	say := func(format string, args ...any) {
		t.Helper()
		flood(t, "unixgram", p.Unixgram, 1, 1, func(packet []byte, _ int) []byte {
			return fmt.Appendf(packet, format, args...)
		})
	}
	say("temperature:1|g|#room:known\nother:1|c|#known:yes")
	begun := time.Now()
	flood(t, "udp", p.UDP, udpLines, 1700, unique("flood.udp")) // takes 3 s; the server looks up senders after 1 s
	flood(t, "unixgram", p.Unixgram, lines, 20_000, unique("flood.unixgram"))
	sent["flood_udp"], sent["flood_unixgram"], sent["other"] = udpLines, lines, 2
	flood(t, "unixgram", p.Unixgram, 2*perMetric, 1000, func(packet []byte, i int) []byte {
		return fmt.Appendf(packet, "temperature:7|g|#room:new%d\n", i)
	})
	say("temperature:42|g|#room:known\nother:1|c|#known:yes")

	for label, sender := range map[string]string{"flood_udp": "127.0.0.1:",
		"flood_unixgram": fmt.Sprintf("pid %d, uid %d, command e2e.test", os.Getpid(), os.Getuid())} {
		eventually(t, 10*time.Second-time.Since(begun), label+" is named in a metric and in the log", func() error {
			body, err := p.get("/metrics", nil)
			if err != nil {
				return err
			}
			if !hasLine(string(body), "freshet_limit_offender{", `metric="`+label+`"`, `label="request"`, sender) {
				return fmt.Errorf("freshet_limit_offender does not name the metric")
			}
			if !hasLine(p.output.String(), "over a limit", "metric="+label, "label=request", sender) {
				return fmt.Errorf("the log does not name the metric")
			}
			return nil
		})
	}
	for metric, n := range sent {
		eventually(t, 30*time.Second, "the total is exact for "+metric, func() error {
			return p.expect("sum("+metric+")", float64(n), 0)
		})
	}
	for _, c := range []struct {
		why, expr string
		want      float64
	}{
		{"the series of a metric and its overflow series", "count(flood_udp)", perMetric + 1},
		{"the increments that were folded", `flood_udp{freshet_overflow="true"}`, udpLines - perMetric},
		{"a known gauge continues", `temperature{room="known"}`, 42},
		{"new gauges are refused at the limit", "count(temperature)", perMetric},
	} {
		eventually(t, 30*time.Second, c.why, func() error { return p.expect(c.expr, c.want, 0) })
	}
	eventually(t, 30*time.Second, "the refused samples are counted", func() error {
		body, err := p.get("/metrics", nil)
		if err != nil {
			return err
		}
		if want := fmt.Sprintf(`reason="metric_series",tenant="default"} %d`,
			perMetric+1); !hasLine(string(body), `freshet_limit_samples_total{fate="refused",`, want) {
			return fmt.Errorf("/metrics has no line of refused samples with %s", want)
		}
		return nil
	})

	// The last window of the flood may still be open, and a new series in that window or in the next
	// one would still count as part of the flood.
	stopped := time.Now()
	tries, next := 0, stopped.Add(2*time.Second)
	eventually(t, 30*time.Second, "a new series has a place again", func() error {
		if time.Now().After(next) {
			tries++
			next = next.Add(3 * time.Second)
			say("flood.udp:1|c|#request:after%d", tries)
		}
		results, err := p.query(`flood_udp{request=~"after.*"}`)
		if err == nil && len(results) == 0 {
			err = fmt.Errorf("all %d new series were folded, want a place for one", tries)
		}
		return err
	})
	t.Logf("the first new series had a place %v after the flood, in try %d",
		time.Since(stopped).Round(time.Millisecond), tries)
	p.terminate(t)
}

// hasLine reports whether a line of text holds all parts.
func hasLine(text string, parts ...string) bool {
	for line := range strings.Lines(text) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

// seriesBytes is the total memory of a series according to docs/limits.md, in bytes.
const seriesBytes = 10_000

// TestAFloodTakesNoMoreMemory checks that a flood of series takes no more memory than the series that
// the limit allows. Two servers get equally many lines at the same time. The first server gets as many
// series as the limit allows, again and again. The second server gets a new series with each line; its
// heap may be 5 % larger than the first server's. Its resident memory depends on the time of the last
// garbage collection. It may be 5 % above what docs/limits.md says for as many series as the limit
// allows.
//
// 20,000 lines a second for 8 s in CI; 100,000 for a minute in `make soak`.
func TestAFloodTakesNoMoreMemory(t *testing.T) {
	rate, seconds, allowed := 20_000, 8, 5000
	if soak {
		rate, seconds, allowed = 100_000, 60, 50_000
	}
	var servers [2]*process
	var empty int
	for i := range servers {
		servers[i] = start(t, dataDir(t), "--limits-max-series-per-metric", strconv.Itoa(allowed),
			"--limits-max-new-series-per-minute", "0")
		empty = peak(t, servers[i])
	}
	done := make(chan struct{})
	lines := rate * seconds
	go func() {
		defer close(done)
		flood(t, "unixgram", servers[0].Unixgram, lines, rate, func(packet []byte, i int) []byte {
			return unique("requests")(packet, i%allowed)
		})
	}()
	flood(t, "unixgram", servers[1].Unixgram, lines, rate, unique("requests"))
	<-done
	var heaps, peaks [2]int
	for i, p := range servers {
		eventually(t, 30*time.Second, "the total is exact", func() error {
			return p.expect("sum(requests)", float64(lines), 0)
		})
		heaps[i], peaks[i] = inUse(t, p), peak(t, p)
	}
	worth := empty + allowed*seriesBytes
	t.Logf("%d series: %d MiB in use, at most %d MiB resident; after a flood of %d: %d and %d MiB; "+
		"a full limit takes %d MiB",
		allowed, heaps[0]>>20, peaks[0]>>20, lines, heaps[1]>>20, peaks[1]>>20, worth>>20)
	allowance := heaps[0] / 20
	if !soak {
		allowance += 4 << 20 // 5 % of so small a process is noise; remembering the flood would take 160 MiB
	}
	if heaps[1] > heaps[0]+allowance {
		t.Errorf("the heap has %d MiB after a flood, more than 5 %% above the %d MiB without a flood",
			heaps[1]>>20, heaps[0]>>20)
	}
	if peaks[1] > worth+worth/20 {
		t.Errorf("after a flood the resident memory was %d MiB, more than 5 %% above the %d MiB for all series that "+
			"the limit allows",
			peaks[1]>>20, worth>>20)
	}
	for _, p := range servers {
		p.terminate(t)
	}
}

// inUse returns the bytes in the heap of a process after a garbage collection.
func inUse(t *testing.T, p *process) int {
	t.Helper()
	if _, err := p.get("/debug/pprof/heap", url.Values{"gc": {"1"}}); err != nil {
		t.Fatal(err)
	}
	bytes, err := p.ownMetric("go_memstats_heap_alloc_bytes")
	if err != nil {
		t.Fatal(err)
	}
	return int(bytes)
}

// peak returns the largest resident memory of a process so far, in bytes.
func peak(t *testing.T, p *process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	if _, err := fmt.Sscanf(after(string(status), "VmHWM:"), "%d", &kib); err != nil {
		t.Fatalf("VmHWM: %v in %s", err, status)
	}
	return kib << 10
}

// TestKnownSeriesStayKnownAfterARestart checks that series in tiles keep their places in a limit through
// a restart. The collector itself does not remember the places, so new series could take them after the
// restart. Merged gauges keep the places of their sources.
func TestKnownSeriesStayKnownAfterARestart(t *testing.T) {
	t.Parallel() // it mostly waits for windows
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	if err := os.WriteFile(file, []byte("limits: {max_series_per_metric: 2}\n"+
		"mapping: {rules: [{match: merged, gauge_merge: sum, drop_labels: [id]}]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--config", file)
	sendOne(t, p, "known:1|g|#id:a", "known:1|g|#id:b", "merged:1|g|#id:a", "merged:1|g|#id:b", "hits:1|c|#id:a",
		"hits:1|c|#id:b", "hits:1|c|#id:c")
	expectSoon(t, p, "sum(known)", 2)
	p.terminate(t)
	p = start(t, dir, "--config", file)
	sendOne(t, p, "known:100|g|#id:new", "known:10|g|#id:a", "known:10|g|#id:b", "merged:100|g|#id:new",
		"merged:10|g|#id:a", "merged:10|g|#id:b",
		"hits:1|c|#id:new", "hits:1|c|#id:a", "hits:1|c|#id:b")
	expectSoon(t, p, "sum(known)", 20)
	expectSoon(t, p, "merged", 20)
	expectSoon(t, p, `sum(hits{freshet_overflow=""})`, 4)
	expectSoon(t, p, `sum(hits{freshet_overflow="true"})`, 2)
	eventually(t, 30*time.Second, "the refusals are in the books", func() error {
		b, _, err := p.ledger()
		if err == nil && (b.Samples.Refused["metric_series"] != 2 || b.Samples.OfWhich.Folded != 1) {
			err = fmt.Errorf("the books have %+v, want 2 samples refused as metric_series and 1 folded", b.Samples)
		}
		return err
	})
}
