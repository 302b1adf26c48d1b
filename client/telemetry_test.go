//go:build go1.25

package client

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The reported counts add up to what happened, even if packets are lost.
func TestTelemetryAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram, refuses: func(p string) bool {
			return strings.Contains(p, "p.d:") && !strings.Contains(p, telemetryPrefix)
		}}
		c := startTelling(t, w, Options{Prefix: "p.", Tags: []string{"env:prod"}, Container: "abc", MaxSeries: 50})
		handed := map[string]float64{}
		use := func() {
			for i := range 100 {
				c.Count("c", 1, fmt.Sprint(i))
				c.Gauge("g", 1, fmt.Sprint(i))
				c.Timing("t", 1, fmt.Sprint(i))
				c.Sampled(0.5).Histogram("h", 1)
				c.Count("c", -1)
				_ = c.Event(Event{Title: fmt.Sprint(i)})
				_ = c.ServiceCheck(ServiceCheck{Name: fmt.Sprint(i)})
			}
			for range 1000 {
				c.Distribution("d", 1.0/3) // in a packet that the socket does not accept
			}
			handed["count"] += 200
			handed["gauge"] += 100
			handed["timing"] += 100
			handed["histogram"] += 100
			handed["distribution"] += 1000
			handed["metrics"] += 1500
			handed["events"] += 100
			handed["service_checks"] += 100
		}
		got := received{}
		time.Sleep(defaultInterval / 2) // the middle between two flushes, so that no flush runs during the calls
		for range 5 {
			use()
			time.Sleep(telemetryGap / 2)
		}
		synctest.Wait()
		got.read(t, w.take())
		if got.sum("c datadog.dogstatsd.client.metrics client:freshet,client_version:"+version+
			",client_transport:uds,env:prod") == 0 {
			t.Errorf("nothing is reported after %v", telemetryGap)
		}
		w.set(func(w *wire) { w.down = true })
		use()
		time.Sleep(time.Minute)
		w.set(func(w *wire) { w.down = false })
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		last := w.take()
		got.read(t, last)

		tags := " client:freshet,client_version:" + version + ",client_transport:uds,env:prod"
		s := c.Stats()
		inLast := float64(0) // packets with the last report; no report counts them
		for i, p := range last {
			if strings.Contains(p, "client.metrics:") {
				inLast = float64(len(last) - i)
			}
		}
		for name, want := range map[string]float64{
			"metrics": handed["metrics"], "events": handed["events"], "service_checks": handed["service_checks"],
			"metric_dropped_on_receive": float64(s.Refused + s.Full),
			"packets_sent":              float64(s.Packets) - inLast,
			"packets_dropped":           float64(s.DroppedPackets), "packets_dropped_writer": float64(s.DroppedPackets),
			"packets_dropped_queue": 0,
			"bytes_dropped":         float64(s.DroppedBytes), "bytes_dropped_writer": float64(s.DroppedBytes),
			"bytes_dropped_queue": 0,
		} {
			key := "c " + telemetryPrefix + name + tags
			if l := got[key]; l == nil || l.sum != want {
				t.Errorf("%s: got %+v, want %v", name, l, want)
			}
		}
		if s.DroppedPackets == 0 || s.Full == 0 || s.Skipped == 0 {
			t.Errorf("unexpected counts: %+v", s)
		}
		for _, kind := range []string{"count", "gauge", "timing", "histogram", "distribution"} {
			key := "c " + telemetryPrefix + "metrics_by_type metrics_type:" + kind + strings.Replace(tags, " ", ",", 1)
			if got := got.sum(key); got != handed[kind] {
				t.Errorf("%s: got %v, want %v", kind, got, handed[kind])
			}
		}
		// A series counts once for each flush in which it had values.
		if n := got.sum("c " + telemetryPrefix + "aggregated_context" + tags); n < 6*50 || n > 6*70 {
			t.Errorf("%v contexts were reported, want 300 to 420: 6 flushes of 50 series and up to 20 overflow series", n)
		}
	})
}

func TestTelemetryOfEachTransport(t *testing.T) {
	for network, want := range map[string]string{udp: "udp", unixgram: "uds", unix: "uds-stream"} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{network: network}
			c := startTelling(t, w, Options{})
			c.Count("a", 1)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			report := strings.Join(w.take(), "\n")
			if !strings.Contains(report, "|c|#client:freshet,client_version:"+version+",client_transport:"+want+"\n") {
				t.Errorf("%s: %s", network, report)
			}
		})
	}
}

// A client without calls sends only its own counts, every 10 s. If telemetry is off, it sends nothing.
func TestTelemetryFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{network: unixgram}
		c := startTelling(t, w, Options{})
		time.Sleep(time.Minute + time.Second/2)
		reports := w.take()
		if len(reports) != 6 ||
			slices.ContainsFunc(reports, func(p string) bool { return !strings.Contains(p, "client.metrics:0|c") }) {
			t.Errorf("unexpected reports: %q", reports)
		}
		_ = c.Close()
		w.take()
		startOn(t, w, Options{})
		time.Sleep(time.Minute)
		if reports := w.take(); len(reports) > 0 {
			t.Errorf("a client without telemetry sent %q", reports)
		}
	})
}
