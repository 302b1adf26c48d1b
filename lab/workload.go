package main

import (
	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/lab/report"
)

// workload is a load under which receivers are compared.
type workload struct {
	report.Load
	network string
	traffic *load.Load // rendered once
	bare    []string   // methods of lab/limit, beginning with the base of comparison
	bursts  bool       // whether packets come in bursts, not evenly
	peers   bool       // whether it is also sent to other servers, which takes long
}

// Sizes of packets that clients fill, in bytes: an Ethernet frame, and a datagram of a Unix socket.
const (
	frame = 1432
	local = 8192
)

// workloads returns the loads whose results are on the page. The goals are ratios to the first bare
// receiver of the same run.
func workloads() ([]*workload, error) {
	all := []*workload{
		{Load: report.Load{
			ID: "udp-1-40k", Name: "UDP, 1 metric a packet, 40,000 a second", Packed: 1, Rate: 40e3, Contexts: 1000, Goal: 1.0,
		},
			network: udp, bare: []string{recvfrom, recvmmsg, sleep1, sleep5}, peers: true},
		{Load: report.Load{
			ID: "udp-1-200k", Name: "UDP, 1 metric a packet, 200,000 a second", Packed: 1, Rate: 200e3, Contexts: 1000,
			Goal: 0.65,
		},
			network: udp, bare: []string{recvfrom, recvmmsg, sleep1, sleep5, gro}},
		{Load: report.Load{
			ID: "udp-14-1k", Name: "UDP, 14 metrics a packet, 1,000 contexts", Packed: 14, Rate: 120e3, Contexts: 1000,
			Goal: 2.0,
		},
			network: udp, bare: []string{recvfrom, sleep1, gro}, peers: true},
		{Load: report.Load{
			ID: "udp-14-10k", Name: "UDP, 14 metrics a packet, 10,000 contexts", Packed: 14, Rate: 120e3, Contexts: 10_000,
			Goal: 3.1, WholeGoal: 1.25,
		},
			network: udp, bare: []string{recvfrom}},
		{Load: report.Load{
			ID: "unixgram-81", Name: "Unix datagrams, 81 metrics a packet", Packed: 81, Rate: 120e3, Contexts: 1000, Goal: 4.4,
		},
			network: unixgram, bare: []string{unixRecv}, peers: true},
	}
	for _, w := range all {
		if err := w.render(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// packedLoad is a load whose packets are as full as those of usual clients.
type packedLoad struct {
	workload
	must, aim float64 // microseconds of CPU a metric
}

func (w *workload) render() (err error) {
	c := load.Standard()
	c.Contexts, c.MetricsPerPacket, c.PacketSize = w.Contexts, w.Packed, frame
	if w.network == unixgram {
		c.PacketSize = local
	}
	w.Bytes = w.Packed*(c.LineBytes()+1) - 1 // a newline between two lines
	w.traffic, err = load.New(c)
	return err
}
