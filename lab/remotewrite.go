package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

// remoteWritePart is the name of this part in -only.
const remoteWritePart = "remotewrite"

// remoteWriteSteps measures the databases in turns, so that other work on the machine affects all
// of them equally.
func (l *lab) remoteWriteSteps() (steps []step) {
	part := &report.RemoteWrite{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion()}
	for _, p := range l.tsdbs {
		part.Versions = append(part.Versions, report.Version{Name: p.Name, Version: p.Version})
	}
	l.results.RemoteWrite = part
	runs := l.runs
	if l.brief {
		runs = min(runs, quickWriteRuns)
	}
	for run := range runs {
		for _, w := range writeWorkloads() {
			steps = append(steps, l.writeSteps(part, run, w, l.databases())...)
		}
		if !l.brief {
			steps = append(steps, l.acknowledgeStep(part, run))
		}
	}
	return steps
}

// writeSteps returns the steps for one run of each database under a load.
func (l *lab) writeSteps(part *report.RemoteWrite, run int, w writeWorkload, databases []database) (steps []step) {
	var base float64 // cost of the first peer in this run; 0 if the peer failed
	for i, d := range databases {
		if w.version == 2 && !d.version2 {
			steps = append(steps, step{what: d.name + " does not understand version 2", do: func(context.Context) error {
				part.Cost(w.WriteLoad, d.name, d.group).Not = "does not understand version 2.0"
				return nil
			}})
			continue
		}
		steps = append(steps, step{
			what:  fmt.Sprintf("remote write %s, run %d: %s", w.ID, run+1, d.name),
			takes: w.takes,
			do: func(ctx context.Context) error {
				m, err := w.measure(ctx, d)
				if err != nil {
					if d.group == report.Peer && ctx.Err() == nil {
						l.leaveOut("%v", err)
						return nil
					}
					return err
				}
				if i == 0 && d.group == report.Peer {
					base = m.seconds
				}
				c := part.Cost(w.WriteLoad, d.name, d.group)
				m.addTo(c)
				if base > 0 {
					c.Ratio = append(c.Ratio, m.seconds/base)
				}
				return nil
			},
		})
	}
	return steps
}

// writeMeasurement is the result of one run of a database under a load.
type writeMeasurement struct {
	seconds, newMicros  float64 // CPU s for a million samples of known series; CPU us for a new series, without its sample
	p50, p99            time.Duration
	resident            []float64 // bytes a series, minus the memory of the empty database; empty if there are few series
	perSecond           float64   // samples a second
	acknowledged, found uint64
}

func (m writeMeasurement) addTo(c *report.WriteCost) {
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	c.Seconds = append(c.Seconds, m.seconds)
	c.New = append(c.New, m.newMicros)
	c.P50 = append(c.P50, milliseconds(m.p50))
	c.P99 = append(c.P99, milliseconds(m.p99))
	c.Resident = append(c.Resident, m.resident...)
	c.PerSecond = append(c.PerSecond, m.perSecond)
	c.Acknowledged += m.acknowledged
	c.Found += m.found
}

// measure starts a database, sends it the load, queries the acknowledged samples, and stops the database.
func (w writeWorkload) measure(ctx context.Context, d database) (m writeMeasurement, err error) {
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(dir)
	traffic, err := remoteload.New(w.config())
	if err != nil {
		return m, err
	}
	p, err := d.start(ctx, dir)
	if err != nil {
		return m, fmt.Errorf("start %s: %w", d.name, err)
	}
	err = m.during(ctx, p, traffic, w)
	if err := errors.Join(err, p.stop()); err != nil {
		return m, fmt.Errorf("%s, %s: %w", w.ID, d.name, err)
	}
	return m, nil
}

func (m *writeMeasurement) during(
	ctx context.Context, p *runningDatabase, traffic *remoteload.Load, w writeWorkload,
) error {
	writer, err := loadgen.NewWriter(loadgen.WriterConfig{URL: p.url + "/api/v1/write", Connections: writeConnections},
		traffic)
	if err != nil {
		return err
	}
	empty, err := resident(p.pid)
	if err != nil {
		return err
	}
	first, cpuFirst, err := p.write(ctx, writer, 1)
	if err != nil {
		return err
	}
	rest, cpuRest, err := p.write(ctx, writer, w.Rounds-1)
	if err != nil {
		return err
	}
	full, err := resident(p.pid)
	if err != nil {
		return err
	}
	series := float64(traffic.Series)
	perSample := cpuRest.Seconds() / float64(rest.Sent.Samples)
	m.seconds = 1e6 * perSample
	m.newMicros = 1e6 * (cpuFirst.Seconds()/series - perSample)
	m.p50, m.p99 = rest.Latency.Quantile(.5), rest.Latency.Quantile(.99)
	if traffic.Series >= manySeries {
		m.resident = []float64{(float64(full) - float64(empty)) / series}
	}
	m.perSecond = float64(rest.Written) / rest.Elapsed.Seconds()
	m.acknowledged = first.Written + rest.Written
	if m.acknowledged != uint64(w.Rounds*traffic.Series) {
		return fmt.Errorf("acknowledged %d of %d samples: %s",
			m.acknowledged, w.Rounds*traffic.Series, first.Refused+rest.Refused)
	}
	if w.Late {
		if err := m.late(ctx, p, traffic.Config, w.Rounds); err != nil {
			return err
		}
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	m.found, err = p.find(ctx, traffic.Config, w.Rounds)
	return err
}

// late sends as many samples again, each before one that was sent, and replaces the figures of samples by theirs.
func (m *writeMeasurement) late(ctx context.Context, p *runningDatabase, sent remoteload.Config, rounds int) error {
	writer, err := p.writer(before(sent), writeConnections)
	if err != nil {
		return err
	}
	r, cost, err := p.write(ctx, writer, rounds)
	if err != nil {
		return err
	}
	if r.Written != uint64(rounds*sent.Series) {
		return fmt.Errorf("acknowledged %d of %d late samples: %s", r.Written, rounds*sent.Series, r.Refused)
	}
	m.acknowledged += r.Written
	m.seconds = 1e6 * cost.Seconds() / float64(r.Sent.Samples)
	m.p50, m.p99 = r.Latency.Quantile(.5), r.Latency.Quantile(.99)
	m.perSecond = float64(r.Written) / r.Elapsed.Seconds()
	return nil
}
