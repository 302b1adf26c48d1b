package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// panel is a query of a dashboard, sent at each refresh.
type panel struct {
	query string
	span  time.Duration // the time range, which ends now
	step  time.Duration
}

// These values follow Grafana's limits for a panel of 700 pixels: at most 700 points, and no step below the
// interval of the samples.
const (
	shortSpan, shortStep = time.Hour, 15 * time.Second
	longSpan, longStep   = 6 * time.Hour, 30 * time.Second
)

// panels returns the panels of a dashboard about one handler of a service. Its series come from remoteload.
func panels(job, handler string) []panel {
	all, one := fmt.Sprintf("{job=%q}", job), fmt.Sprintf("{job=%q,handler=%q}", job, handler)
	return []panel{
		{"sum by (code) (rate(http_requests_total" + all + "[5m]))", shortSpan, shortStep},
		{`sum(rate(http_requests_total{code="500",` + one[1:] + "[5m])) / sum(rate(http_requests_total" + one + "[5m]))",
			longSpan, longStep},
		{"histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket" + one + "[5m])))", shortSpan,
			shortStep},
		{"topk(5, sum by (pod) (rate(http_requests_total" + one + "[5m])))", longSpan, longStep},
		{"sum by (handler) (rate(http_request_duration_seconds_sum" + all +
			"[5m])) / sum by (handler) (rate(http_request_duration_seconds_count" + all + "[5m]))", shortSpan, shortStep},
		{"http_requests_in_flight" + one, shortSpan, shortStep},
	}
}

// handlers returns the handlers of remoteload's series.
func handlers() []string {
	return []string{"/api/v1/cart", "/api/v1/cart/items", "/api/v1/checkout", "/api/v1/products/{id}", "/healthz"}
}

const (
	// browserConnections is the number of connections that a browser opens to one server.
	browserConnections = 6
	// queryPatience is how long Grafana waits for an answer.
	queryPatience = 30 * time.Second
)

// dashboard is a dashboard that is open in a browser and refreshed at an interval.
type dashboard struct {
	client *http.Client
	url    string // base address of the query API
	panels []panel
	phase  time.Duration // time of its first refresh
}

// dashboards returns n dashboards that refresh at different times. The same seed gives the same times.
func dashboards(n int, url, job string, every time.Duration, seed uint64) (all []*dashboard) {
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range n {
		all = append(all, &dashboard{
			client: &http.Client{
				Timeout:   queryPatience,
				Transport: &http.Transport{MaxConnsPerHost: browserConnections, MaxIdleConnsPerHost: browserConnections},
			},
			url:    url + "/api/v1/query_range",
			panels: panels(job, handlers()[i%len(handlers())]),
			phase:  time.Duration(random.Int64N(int64(every))),
		})
	}
	return all
}

// answered counts the answers to queries.
type answered struct {
	mu      sync.Mutex
	took    []float64 // time of each query with an answer, in milliseconds
	refused uint64    // answers that tell the client to retry, or to change the query
	failed  uint64    // queries that failed in any other way
	empty   uint64    // answers without a series
	delayed uint64    // refreshes that had to wait for the previous one
	why     string    // the cause for the first query that was refused, failed or was empty
}

// refresh refreshes a dashboard until `end`, and returns when all queries are answered. It does not count
// refreshes that are due before `counting`. Both times are relative to `begun`.
func (d *dashboard) refresh(ctx context.Context, begun time.Time, every, counting, end time.Duration,
	to *answered) error {
	defer d.client.CloseIdleConnections()
	for due := d.phase; due < end; due += every {
		if late := time.Since(begun) - due; late > 0 {
			due += late
			if due >= counting {
				to.add(func() { to.delayed++ })
			}
		}
		if err := wait(ctx, time.Until(begun.Add(due))); err != nil {
			return err
		}
		var asked sync.WaitGroup
		for _, p := range d.panels {
			asked.Go(func() {
				started := time.Now()
				empty, status, err := d.ask(ctx, p, started)
				if due >= counting {
					to.add(func() { to.count(p, time.Since(started), empty, status, err) })
				}
			})
		}
		asked.Wait()
	}
	return ctx.Err()
}

func (a *answered) add(what func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what()
}

func (a *answered) count(p panel, took time.Duration, empty bool, status int, err error) {
	switch {
	case status == http.StatusUnprocessableEntity, status == http.StatusTooManyRequests,
		status == http.StatusServiceUnavailable:
		a.refused++
	case err != nil:
		a.failed++
	default:
		a.took = append(a.took, float64(took.Microseconds())/1e3)
		if empty {
			a.empty++
			err = fmt.Errorf("%s: the answer has no series", p.query)
		}
	}
	if err != nil && a.why == "" {
		a.why = err.Error()
	}
}

// ask sends a query as Grafana does. The query's times are multiples of the step, so that every refresh
// asks for a series at the same points.
func (d *dashboard) ask(ctx context.Context, p panel, now time.Time) (empty bool, status int, err error) {
	end := now.Truncate(p.step)
	form := url.Values{"query": {p.query}, "step": {strconv.FormatFloat(p.step.Seconds(), 'f', -1, 64)},
		"start": {strconv.FormatInt(end.Add(-p.span).Unix(), 10)}, "end": {strconv.FormatInt(end.Unix(), 10)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, strings.NewReader(form.Encode()))
	if err != nil {
		return false, 0, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := d.client.Do(request)
	if err != nil {
		return false, 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", p.query, answer.Status, body)
	}
	return bytes.Contains(body[:min(len(body), 200)], []byte(`"result":[]`)), answer.StatusCode, err
}
