package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/lab/report"
)

// atLeast is the least time for which each receiver is measured.
const atLeast = time.Second

// costSteps returns the steps that measure receivers under each load. `choose` returns the receivers for a
// load.
func (l *lab) costSteps(choose func(*workload) []receiver) (steps []step) {
	for _, w := range l.workloads {
		if l.wants(w.ID) {
			steps = append(steps, l.costStepsOf(w, choose(w), atLeast)...)
		}
	}
	return steps
}

// costStepsOf measures receivers in turns, A B C A B C, so that other work on the machine affects all of
// them equally. Each turn lasts for whole periods of the receiver's flush, and at least `atLeast`.
func (l *lab) costStepsOf(w *workload, receivers []receiver, atLeast time.Duration) (steps []step) {
	for run := range max(l.runs, l.peerRuns) {
		for _, r := range receivers {
			if run >= l.runsOf(r) {
				continue
			}
			steps = append(steps, step{
				what:  fmt.Sprintf("%s, run %d: %s", w.ID, run+1, r.name),
				takes: r.warmUp() + r.interval(atLeast) + r.around,
				do: func(ctx context.Context) error {
					m, err := measure(ctx, r, w, r.interval(atLeast))
					if err != nil {
						return l.tolerate(ctx, r, err)
					}
					m.addTo(l.results.Cost(w.Load, r.name, r.group, r.interval(atLeast)))
					return nil
				},
			})
		}
	}
	return steps
}

// measurement is the result of one run of a receiver under a load.
type measurement struct {
	micros   float64     // microseconds of CPU time for each received metric
	rate     float64     // metrics a second, as sent
	sent     load.Totals // what was sent in the whole run
	received uint64      // metrics in the whole run, as the receiver counted them
	resident uint64      // resident memory in bytes, at the end of the run

	allocations []float64 // objects per metric; empty if the receiver does not report objects
}

func (m measurement) addTo(c *report.Cost) {
	c.Micros = append(c.Micros, m.micros)
	c.Rate = append(c.Rate, m.rate)
	c.Resident = append(c.Resident, float64(m.resident))
	c.Allocations = append(c.Allocations, m.allocations...)
	c.Sent += m.sent.Metrics
	c.Received += m.received
}

// measure starts a receiver, sends it the load, and stops it.
//
// The measured time begins and ends during sending, and lasts for whole periods of the receiver's flush. So
// it contains the same number of flushes wherever it begins, and no time in which the receiver starts, ends
// or waits. Work that is in progress at its beginning balances work in progress at its end.
func measure(ctx context.Context, r receiver, w *workload, interval time.Duration) (m measurement, err error) {
	err = r.with(ctx, nil, func(p *running) error {
		by := road{network: w.network, segmented: r.segmented, bursts: w.bursts}
		s, err := send(ctx, p, by, w.traffic, loadgen.Pace{Rate: w.Rate})
		if err != nil {
			return err
		}
		errMeasure := m.during(ctx, p, s, r.warmUp(), interval)
		result, err := s.end()
		if err := errors.Join(errMeasure, err); err != nil {
			return err
		}
		m.sent = result.Sent
		m.received, err = p.settle(ctx, counted{}, m.sent, r.flush+3*time.Second)
		if m.received == 0 {
			return errors.Join(err, errors.New("received nothing"))
		}
		// Lost metrics cost almost nothing. Without this correction they would make received metrics look
		// cheaper.
		m.micros *= max(1, float64(m.sent.Metrics)/float64(m.received))
		return err
	})
	return m, err
}

// during is a helper: after a warm-up it measures for an interval. It asks the receiver for the number
// of allocations before and after the interval, since the receiver spends time on that request.
func (m *measurement) during(ctx context.Context, p *running, s *sending, warmUp, interval time.Duration) error {
	if err := wait(ctx, warmUp); err != nil {
		return err
	}
	allocations, err := p.countAllocations(ctx)
	if err != nil {
		return err
	}
	begin, err := lookAt(p, s)
	if err != nil {
		return err
	}
	end := begin
	for end.sent == begin.sent { // usually one pass; more if the machine is too busy to let the sender run
		if err := wait(ctx, interval); err != nil {
			return err
		}
		if s.over() {
			return errors.New("sending ended too early")
		}
		if end, err = lookAt(p, s); err != nil {
			return err
		}
	}
	metrics := float64(end.sent - begin.sent)
	m.micros = float64((end.cpu - begin.cpu).Nanoseconds()) / 1e3 / metrics
	m.rate = metrics / end.at.Sub(begin.at).Seconds()
	if m.allocations, err = allocations(metrics); err != nil {
		return err
	}
	m.resident, err = resident(p.pid)
	return err
}

// look is the state of a run at one moment.
type look struct {
	at   time.Time
	cpu  time.Duration // the receiver's CPU time
	sent uint64        // metrics sent so far
}

func lookAt(p *running, s *sending) (look, error) {
	cpu, err := report.CPUTime(p.pid)
	return look{time.Now(), cpu, s.Progress().Metrics}, err
}

// countAllocations begins to count the objects that the receiver allocates. `per` returns the number of
// objects per metric, or an empty list if the receiver does not report objects.
func (p *running) countAllocations(ctx context.Context) (per func(metrics float64) ([]float64, error), err error) {
	if p.allocated == nil {
		return func(float64) ([]float64, error) { return nil, nil }, nil
	}
	before, err := p.allocated(ctx)
	return func(metrics float64) ([]float64, error) {
		after, err := p.allocated(ctx)
		return []float64{float64(after-before) / metrics}, err
	}, err
}
