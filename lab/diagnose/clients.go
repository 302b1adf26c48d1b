package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
)

const (
	floodBatch    = 2000 // series in each request
	floodWriters  = 4
	growPerSecond = 300

	tinyBatch = 10 // samples in each request
)

// floodSeries writes as many new series as it can.
func floodSeries(ctx context.Context, _ string, s *server) error {
	group, ctx := errgroup.WithContext(ctx)
	for writer := range floodWriters {
		group.Go(func() error {
			for i := 0; ctx.Err() == nil; i += floodBatch {
				if err := writeNew(ctx, s.HTTP, fmt.Sprint(writer, "-"), i, floodBatch); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// growSeries writes 300 new series each second.
func growSeries(ctx context.Context, _ string, s *server) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; ; i += growPerSecond {
		if err := writeNew(ctx, s.HTTP, "", i, growPerSecond); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeNew writes `n` series of one metric. The values of one label count up from `first`. A
// refusal because of a limit is not an error.
func writeNew(ctx context.Context, address, prefix string, first, n int) error {
	var request prompb.WriteRequest
	now := time.Now().UnixMilli()
	for i := range n {
		request.Timeseries = append(request.Timeseries, prompb.TimeSeries{
			Labels: []prompb.Label{
				{Name: "__name__", Value: "requests_total"}, {Name: "request", Value: prefix + strconv.Itoa(first+i)},
				{Name: "service", Value: "shop"},
			},
			Samples: []prompb.Sample{{Value: 1, Timestamp: now}},
		})
	}
	body, err := request.Marshal()
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/api/v1/write",
		bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		return err
	}
	r.Header = http.Header{
		"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"snappy"}, "User-Agent": {"shop/1"},
	}
	_, err = ask(r)
	return err
}

// ask sends a request and reads the answer.
func ask(r *http.Request) (status int, err error) {
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// dashboards sends the queries of a number of expensive panels, as Grafana does, with a pause after each
// query.
func dashboards(panels int, pause time.Duration) func(context.Context, string, *server) error {
	return func(ctx context.Context, _ string, s *server) error {
		group, ctx := errgroup.WithContext(ctx)
		for panel := range panels {
			group.Go(func() error {
				for {
					if err := askPanel(ctx, s.HTTP, panel); err != nil {
						return err
					}
					if err := wait(ctx, pause); err != nil {
						return err
					}
				}
			})
		}
		return group.Wait()
	}
}

// askPanel queries the last minute of 3,600 of the load's series.
func askPanel(ctx context.Context, address string, panel int) error {
	now := time.Now()
	form := url.Values{
		"query": {fmt.Sprintf(`sum by (pod) (rate(http_request_duration_seconds_bucket{job=~"bench.+",pod=~".*%d"}[15s]))`,
			panel%10)}, "step": {"1"},
		"start": {fmt.Sprint(now.Add(-time.Minute).Unix())}, "end": {fmt.Sprint(now.Unix())},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/query_range?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	r.Header = http.Header{"User-Agent": {"Grafana/12.1"}, "X-Dashboard-Uid": {"lab"}, "X-Panel-Id": {strconv.Itoa(panel)}}
	status, err := ask(r)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the panel's query: status %d", status)
	}
	return err
}

// sendTiny writes known series, ten samples in each request, over a number of connections. It sends `rate`
// requests per second, or as many as it can if the rate is 0.
func sendTiny(connections int, rate float64) func(context.Context, string, *server) error {
	return func(ctx context.Context, _ string, s *server) error {
		c := remoteload.Standard()
		c.Name, c.Seed, c.Series, c.Batch, c.Interval, c.Begin = "tiny", 7, 10*connections*tinyBatch, tinyBatch, 1,
			time.Now().UnixMilli()
		traffic, err := remoteload.New(c)
		if err != nil {
			return err
		}
		writer, err := loadgen.NewWriter(loadgen.WriterConfig{
			URL: "http://" + s.HTTP + "/api/v1/write", Connections: connections, Header: http.Header{"User-Agent": {"tiny/1"}},
			GoOn: true,
		}, traffic)
		if err != nil {
			return err
		}
		if _, err = writer.Run(ctx, loadgen.WriterPace{Rate: rate * tinyBatch}); ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
}
