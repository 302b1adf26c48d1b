package peers

import (
	"context"
	"fmt"
	"time"
)

var statsdExporter = Peer{
	Name: "statsd_exporter", Version: "v0.31.0", Language: "Go", Tags: true, Unixgram: true,
	program: "statsd_exporter",
	build:   goModule("github.com/prometheus/statsd_exporter"),
	plan:    planStatsdExporter,
}

// This mapping turns timers into histograms, as Prometheus advises. The exporter's default is a
// summary for each series, which costs more.
const statsdExporterMapping = `
defaults:
  observer_type: histogram
`

const statsdExporterLines = "statsd_exporter_lines_total"

func planStatsdExporter(at place) (plan, error) {
	mapping, err := at.write("mapping.yaml", statsdExporterMapping)
	page := "http://" + at.admin + "/metrics"
	return plan{
		command: []string{
			at.program,
			"--statsd.listen-udp=" + at.udp,
			"--statsd.listen-unixgram=" + at.unixgram,
			"--statsd.listen-tcp=",
			fmt.Sprintf("--statsd.read-buffer=%d", receiveBuffer),
			"--statsd.mapping-config=" + mapping,
			"--web.listen-address=" + at.admin,
		},
		received: func(ctx context.Context) (Received, error) {
			text, err := scrape(ctx, page)
			if err != nil {
				return Received{}, err
			}
			lines, err := counter(text, statsdExporterLines, "")
			return Received{Metrics: lines}, err
		},
		beside: func(ctx context.Context) { scrapeEvery(ctx, Flush, page) },
	}, err
}

// scrapeEvery scrapes a peer as Prometheus would, at the interval at which other peers flush.
func scrapeEvery(ctx context.Context, period time.Duration, page string) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = scrape(ctx, page) // `Received` will report the peer's errors
		case <-ctx.Done():
			return
		}
	}
}
