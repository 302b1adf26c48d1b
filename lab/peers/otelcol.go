package peers

import (
	"context"
	"fmt"
	"net"
)

// otelcol is the OpenTelemetry Collector with the StatsD receiver of its contrib repository. The
// version is the version of the receiver.
var otelcol = Peer{
	Name: "otelcol", Version: "v0.160.0", Language: "Go", Tags: true, Unixgram: true,
	program: "otelcol",
	build:   goModule("."),
	plan:    planOtelcol,
}

// By default, otelcol passes on every value of a timer. This configuration makes it aggregate the values
// in a histogram, as other peers do. The receive buffer can be set only for Unix sockets.
const otelcolConfig = `
receivers:
  statsd: &statsd
    transport: udp
    endpoint: "%[1]s"
    aggregation_interval: %[3]s
    timer_histogram_mapping:
      - {statsd_type: timing, observer_type: histogram}
      - {statsd_type: histogram, observer_type: histogram}
      - {statsd_type: distribution, observer_type: histogram}
  statsd/unixgram:
    <<: *statsd
    transport: unixgram
    endpoint: "%[2]s"
    socket_buffer_size: %[4]d
exporters:
  nop:
service:
  pipelines:
    metrics:
      receivers: [statsd, statsd/unixgram]
      exporters: [nop]
  telemetry:
    metrics:
      readers:
        - pull: {exporter: {prometheus: {host: "%[5]s", port: %[6]s}}}
`

func planOtelcol(at place) (plan, error) {
	host, port, err := net.SplitHostPort(at.admin)
	if err != nil {
		return plan{}, err
	}
	config, err := at.write("otelcol.yaml",
		fmt.Sprintf(otelcolConfig, at.udp, at.unixgram, Flush, receiveBuffer, host, port))
	page := "http://" + at.admin + "/metrics"
	return plan{
		command: []string{at.program, "--config", config},
		received: func(ctx context.Context) (Received, error) {
			text, err := scrape(ctx, page)
			if err != nil {
				return Received{}, err
			}
			return otelcolReceived(text)
		},
	}, err
}

// otelcolReceived may miss up to 99 good lines and 99 bad lines: otelcol counts good lines by the
// hundred, and adds one to the counter of bad lines for each hundred. otelcol does not know sets, so it
// counts them as bad lines.
func otelcolReceived(page []byte) (Received, error) {
	const name = "otelcol_receiver_received_statsd_metrics"
	good, err := counter(page, name, `parse_success="true"`)
	if err != nil {
		return Received{}, err
	}
	bad, err := counter(page, name, `parse_success="false"`)
	return Received{Metrics: good + 100*bad}, err
}
