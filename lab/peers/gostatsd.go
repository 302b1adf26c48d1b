package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// gostatsd is pinned by its commit, since the names of its releases are not versions of Go modules.
var gostatsd = Peer{
	Name: "gostatsd", Version: "v0.0.0-20260617134838-e5cc67e82525", Language: "Go", Tags: true,
	program: "gostatsd",
	build:   goModule("github.com/atlassian/gostatsd/cmd/gostatsd"),
	plan:    planGostatsd,
}

// planGostatsd runs gostatsd only on UDP, since gostatsd can have just one address. It has no setting
// for a receive buffer either.
func planGostatsd(at place) (plan, error) {
	return plan{
		command: []string{
			at.program,
			"--metrics-addr=" + at.udp,
			"--backends=null",
			"--flush-interval=" + Flush.String(), // its default is 1s
			// Send gostatsd's counters to the log, for the lab to read. By default they go to the
			// backend, which discards them.
			"--statser-type=logging",
			"--json",
		},
		received: func(context.Context) (Received, error) {
			log, err := at.read(logFile)
			if err != nil {
				return Received{}, err
			}
			return gostatsdReceived(log)
		},
	}, nil
}

// gostatsdReceived reads the log's reports about flushes. Each report has the number of lines
// parsed since the previous flush, and of bad lines since the start. gostatsd does not know
// distributions, so it counts them as bad lines.
func gostatsdReceived(log []byte) (Received, error) {
	var good, bad uint64
	for line := range bytes.Lines(log) {
		if !bytes.HasPrefix(line, []byte("{")) || !bytes.HasSuffix(line, []byte("}\n")) {
			continue // another line, or an incomplete one
		}
		var report struct {
			Name  string
			Value json.Number
		}
		if err := json.Unmarshal(line, &report); err != nil {
			return Received{}, fmt.Errorf("log of gostatsd: %w", err)
		}
		if report.Name != "parser.metrics_received" && report.Name != "parser.bad_lines_seen" {
			continue
		}
		value, err := report.Value.Float64()
		if err != nil {
			return Received{}, fmt.Errorf("log of gostatsd: %s: %w", report.Name, err)
		}
		if report.Name == "parser.bad_lines_seen" {
			bad = uint64(value)
		} else {
			good += uint64(value)
		}
	}
	return Received{Metrics: good + bad}, nil
}
