package peers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
)

var veneur = Peer{
	Name: "veneur", Version: "v14.2.0", Language: "Go", Tags: true, Unixgram: true,
	program: "veneur",
	build:   goModule("github.com/stripe/veneur/v14/cmd/veneur"),
	plan:    planVeneur,
}

// Without sinks, veneur computes the values to flush and discards them. The settings come from
// veneur's example, except the 96 workers, which suit a machine with many cores.
const veneurConfig = `
statsd_listen_addresses:
  - udp://%[1]s
  - unixgram://%[2]s
interval: %[3]s
read_buffer_size_bytes: %[4]d
metric_max_length: 8192 # of a datagram; a longer one is refused, by default from 4096
num_readers: 1
num_workers: 1
http_address: %[5]s
stats_address: %[6]s
`

func planVeneur(at place) (plan, error) {
	// Veneur sends its own counters to a StatsD server. Here the lab receives them.
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return plan{}, err
	}
	var received atomic.Uint64
	config, err := at.write("veneur.yaml", fmt.Sprintf(veneurConfig,
		at.udp, at.unixgram, Flush, receiveBuffer, at.admin, socket.LocalAddr()))
	return plan{
		command: []string{at.program, "-f", config},
		received: func(context.Context) (Received, error) {
			return Received{Metrics: received.Load()}, nil
		},
		beside: func(ctx context.Context) {
			stop := context.AfterFunc(ctx, func() { socket.Close() })
			defer stop()
			packet := make([]byte, 1<<16)
			for {
				n, _, err := socket.ReadFrom(packet)
				if err != nil {
					return
				}
				received.Add(veneurReceived(packet[:n]))
			}
		},
	}, err
}

// veneurReceived sums up the processed metrics in a packet of veneur's counters, which covers one flush.
func veneurReceived(packet []byte) (sum uint64) {
	for line := range bytes.SplitSeq(packet, []byte("\n")) {
		value, ok := bytes.CutPrefix(line, []byte("veneur.worker.metrics_processed_total:"))
		if !ok {
			continue
		}
		value, _, _ = bytes.Cut(value, []byte("|"))
		n, _ := strconv.ParseUint(string(value), 10, 64)
		sum += n
	}
	return sum
}
