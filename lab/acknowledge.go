package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

// acknowledgeRounds is the number of rounds: 40 rounds of 100,000 series are 2,000 requests. The lab
// sends them as fast as possible, and then again at half of that rate.
const acknowledgeRounds = 40

// acknowledgeStep measures how long whole requests take, and how much of that time they wait in the
// queue or are being written. The load is the first of the loads under which databases are compared.
func (l *lab) acknowledgeStep(part *report.RemoteWrite, run int) step {
	w := writeWorkloads()[0]
	w.Rounds = 1 + 2*acknowledgeRounds
	return step{
		what:  fmt.Sprintf("remote write %s, run %d: what an acknowledgement takes", w.ID, run+1),
		takes: 11 * time.Second,
		do:    func(ctx context.Context) error { return l.acknowledge(ctx, part, w) },
	}
}

func (l *lab) acknowledge(ctx context.Context, part *report.RemoteWrite, w writeWorkload) error {
	traffic, err := remoteload.New(w.config())
	if err != nil {
		return err
	}
	return l.withFreshet(ctx, "all", func(f *freshet) error {
		writer, err := loadgen.NewWriter(loadgen.WriterConfig{URL: "http://" + f.HTTP + "/api/v1/write",
			Connections: writeConnections}, traffic)
		if err != nil {
			return err
		}
		if _, err := writer.Run(ctx, loadgen.WriterPace{Rounds: 1}); err != nil { // the first round creates the series
			return err
		}
		rounds := (w.Rounds - 1) / 2
		r, err := f.timed(ctx, writer, loadgen.WriterPace{Rounds: rounds}, part.Acknowledge(w.Name, "flat out"))
		if err != nil {
			return err
		}
		half := float64(r.Written) / r.Elapsed.Seconds() / 2
		_, err = f.timed(ctx, writer, loadgen.WriterPace{Rounds: rounds, Rate: half},
			part.Acknowledge(w.Name, "at half of that rate"))
		return err
	})
}

// timed sends a load, and adds the times of its requests, as the server reports them.
func (f *freshet) timed(ctx context.Context, w *loadgen.Writer, pace loadgen.WriterPace,
	to *report.Acknowledged) (r loadgen.WriterResult, err error) {
	before, err := f.durations(ctx)
	if err != nil {
		return r, err
	}
	if r, err = w.Run(ctx, pace); err != nil {
		return r, err
	}
	after, err := f.durations(ctx)
	if err != nil {
		return r, err
	}
	whole, n, err := p99Between(before.whole, after.whole)
	push, m, errPush := p99Between(before.push, after.push)
	if err := errors.Join(err, errPush); err != nil {
		return r, err
	}
	if n != r.Sent.Requests || m != n {
		return r,
			fmt.Errorf("%d requests were acknowledged, but the server timed %d as a whole, and %d in queue and "+
				"write", r.Sent.Requests, n, m)
	}
	to.Requests += n
	to.Whole, to.Push = append(to.Whole, whole*1e3), append(to.Push, push*1e3)
	return r, nil
}

// durations are the server's histograms of request times, in seconds.
type durations struct{ whole, push *histogram.FloatHistogram }

// durations reads the server's metrics.
func (f *freshet) durations(ctx context.Context) (d durations, err error) {
	err = f.metrics(ctx, func(family string, m *dto.Metric) {
		switch {
		case family == "freshet_ingester_push_seconds":
			d.push = native(m.Histogram)
		case family == "freshet_receive_request_seconds" && m.Label[0].GetValue() == "204": // acknowledged completely
			d.whole = native(m.Histogram)
		}
	})
	if err == nil && (d.whole == nil || d.push == nil) {
		err = errors.New("/metrics: has no acknowledged requests")
	}
	return d, err
}
