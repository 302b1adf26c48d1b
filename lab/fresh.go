package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
)

const (
	freshMetric = "lab_fresh"
	freshEvery  = time.Second

	// freshLimit is how long queries look for a sample. A sample that is not found by then counts as
	// taking freshLimit.
	freshLimit = 10 * time.Second

	// The pauses between queries grow from firstLook to lastLook. At most 30 queries a second are
	// sent, since queries are load, too.
	firstLook = 2 * time.Millisecond
	lastLook  = 30 * time.Millisecond
)

// freshness writes a sample each second until `end`. For each sample sent after `counting`, it returns the
// milliseconds until an instant query found the sample. `end` and `counting` are times since `begun`.
func (p *runningDatabase) freshness(ctx context.Context, begun time.Time, counting,
	end time.Duration) (all []float64, err error) {
	// The samples are a little more than a second apart, so that they fall into every phase of work that
	// repeats each second.
	const step = freshEvery + 70*time.Millisecond
	for due := step / 2; due < end; due = max(due+step, time.Since(begun)) {
		if err := wait(ctx, time.Until(begun.Add(due))); err != nil {
			return nil, err
		}
		took, err := p.fresh(ctx)
		if err != nil {
			return nil, err
		}
		if due >= counting {
			all = append(all, float64(took.Microseconds())/1e3)
		}
	}
	return all, nil
}

var freshProbes atomic.Uint64 // the number of samples sent so far, which gives each sample its own value

// fresh makes one measurement: it writes a sample, and queries until the sample is found. A refused
// query counts as an empty answer.
func (p *runningDatabase) fresh(ctx context.Context) (time.Duration, error) {
	looking, cancel := context.WithTimeout(ctx, freshLimit)
	defer cancel()
	sent, n := time.Now(), freshProbes.Add(1)
	if err := p.writeOne(looking, freshMetric, float64(n), sent); err != nil && looking.Err() == nil {
		return 0, err
	}
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		v, err := p.query(looking, freshMetric, time.Now().UnixMilli())
		switch {
		case err == nil && v >= n:
			return time.Since(sent), nil
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case wait(looking, pause) != nil:
			return freshLimit, ctx.Err()
		}
	}
}

// writeOne writes one sample by remote write 1.0.
func (p *runningDatabase) writeOne(ctx context.Context, name string, value float64, at time.Time) error {
	return p.send(ctx, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: name}},
		Samples: []prompb.Sample{{Value: value, Timestamp: at.UnixMilli()}},
	}}})
}

// send sends a request of remote write 1.0.
func (p *runningDatabase) send(ctx context.Context, message *prompb.WriteRequest) error {
	raw, err := message.Marshal()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/api/v1/write",
		bytes.NewReader(snappy.Encode(nil, raw)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "snappy")
	request.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("write: %s: %.200s", answer.Status, text)
	}
	return err
}

// p99Since returns the 99th percentile of the probes between two reads, by path, in milliseconds.
// It leaves out paths without a probe between the reads.
func (p probes) p99Since(before probes) (map[string]float64, error) {
	all := map[string]float64{}
	for path, now := range p {
		if before[path] == nil {
			continue
		}
		p99, n, err := p99Between(before[path], now)
		if err != nil {
			return nil, fmt.Errorf("freshness by %s: %w", path, err)
		}
		if n > 0 {
			all[path] = p99 * 1e3
		}
	}
	return all, nil
}
