package main

import (
	"context"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/lab/report"
)

// packedPart is the name of this part in -only.
const packedPart = "packed"

// packedTime is how long each receiver is measured: several windows, each with its flush.
const packedTime = 4 * time.Second

// packedLoads returns the loads of this part. A load in bursts comes as the packets of a client that
// sleeps for a millisecond, an even one as those of many clients.
func packedLoads() (all []packedLoad, err error) {
	for _, l := range []packedLoad{
		{workload{Load: report.Load{Name: "UDP, 14 metrics a packet", Packed: 14}, network: udp, bare: []string{recvfrom}},
			.32, .20},
		{workload{Load: report.Load{Name: "Unix datagrams, 81 metrics a packet", Packed: 81}, network: unixgram,
			bare: []string{unixRecv}}, .22, .12},
	} {
		l.Rate, l.Contexts = 120e3, load.Standard().Contexts
		if err := l.render(); err != nil {
			return nil, err
		}
		even := l
		even.Name += ", evenly"
		l.Name, l.bursts = l.Name+", in bursts", true
		all = append(all, even, l)
	}
	return all, nil
}

// packedSteps returns the steps of the part packed. A bare receiver and ours take turns.
func (l *lab) packedSteps() (steps []step) {
	l.results.Packed = &report.Figures{Date: l.results.Date, Machine: l.results.Machine, Versions: l.results.Versions}
	for run := range l.runs {
		for i := range l.packed {
			load := &l.packed[i]
			for _, r := range []receiver{bareReceiver(l.bare, load.bare[0]), collectorReceiver(l.freshet)} {
				steps = append(steps, step{
					what:  fmt.Sprintf("%s, run %d: %s", load.Name, run+1, r.name),
					takes: r.warmUp() + packedTime + r.around,
					do:    func(ctx context.Context) error { return l.packedCost(ctx, r, load, packedTime) },
				})
			}
		}
	}
	return steps
}

// packedCost measures one receiver. Only ours has bounds.
func (l *lab) packedCost(ctx context.Context, r receiver, p *packedLoad, interval time.Duration) error {
	m, err := measure(ctx, r, &p.workload, interval)
	if err != nil {
		return err
	}
	if m.received != m.sent.Metrics {
		return fmt.Errorf("%s, %s: received %d of %d metrics: the figure would not be that of the load", p.Name, r.name,
			m.received, m.sent.Metrics)
	}
	f := report.Figure{What: p.Name, Unit: r.name + ": CPU us a metric", Runs: []float64{m.micros}}
	if r.group == report.Ours {
		f.Must, f.Aim = p.must, p.aim
	}
	l.results.Packed.Add(f)
	return nil
}
