package promapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"golang.org/x/sync/semaphore"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/top"
)

const (
	// cardinalityTime bounds the work of one answer of status/cardinality.
	cardinalityTime = 5 * time.Second

	// cardinalityAge is how old an answer may be that is given again.
	cardinalityAge = 30 * time.Second

	// maxCardinalities bounds the answers that are kept, each of at most some kB.
	maxCardinalities = 64

	// maxCountedMetrics bounds the metrics that are counted for one answer.
	maxCountedMetrics = 200_000
)

// cardinalities counts series for one request after the other, and keeps the last answers.
type cardinalities struct {
	turn *semaphore.Weighted // one request counts at a time, which bounds memory and CPU
	last map[cardinalityKey]keptCardinality
}

func newCardinalities() cardinalities {
	return cardinalities{semaphore.NewWeighted(1), map[cardinalityKey]keptCardinality{}}
}

// errCardinalityBusy means that other requests count series.
var errCardinalityBusy = fmt.Errorf("other requests have counted series for %v, and one counts at a time: try again",
	cardinalityTime)

// cardinalityKey is what a request asks for. Its times are Unix milliseconds of the day.
type cardinalityKey struct {
	tenant, metric, label string
	from, limit           int64
}

type keptCardinality struct {
	at time.Time
	*top.ViewCardinality
}

// maxListed bounds the rows of a list, as names and values may be long.
const maxListed = 1000

// cardinality answers how many series there were in a day, in UTC, in all stores: of each metric, or of one metric by
// label, with what each label costs.
func (a *api) cardinality(r *http.Request) (any, error) {
	limit, err := number(r, "limit", 20)
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > maxListed {
		return nil, parameterError(fmt.Sprintf("limit must be between 1 and %d", maxListed))
	}
	day := a.Now().UTC().Truncate(24 * time.Hour)
	if text := r.FormValue("day"); text != "" {
		if day, err = time.Parse(time.DateOnly, text); err != nil {
			return nil, parameterError(fmt.Sprintf("day = %.40q: want a day in UTC, such as 2026-11-28", text))
		}
	}
	key := cardinalityKey{metric: r.FormValue("metric"), label: r.FormValue("label"), from: day.UnixMilli(),
		limit: int64(limit)}
	if key.label != "" && key.metric == "" {
		return nil, parameterError("label needs a metric")
	}
	key.tenant, _ = tenant.FromContext(r.Context())
	c := &a.cardinalities
	if err := c.wait(r.Context()); err != nil {
		return nil, err
	}
	defer c.turn.Release(1)
	if kept, is := c.last[key]; is && a.Now().Sub(kept.at).Abs() < cardinalityAge {
		return kept.ViewCardinality, nil
	}
	view, err := a.countSeries(r.Context(), key)
	if err != nil {
		return nil, err
	}
	view.Day = day.Format(time.DateOnly)
	c.keep(key, keptCardinality{a.Now(), view})
	return view, nil
}

// wait waits for the turn of a request, for at most cardinalityTime: a count of another one takes as long.
func (c *cardinalities) wait(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, cardinalityTime)
	defer cancel()
	err := c.turn.Acquire(within, 1)
	if err != nil && ctx.Err() == nil {
		return errCardinalityBusy
	}
	return err // of a client that is gone
}

func (c *cardinalities) keep(key cardinalityKey, answer keptCardinality) {
	if len(c.last) >= maxCardinalities {
		clear(c.last)
	}
	c.last[key] = answer
}

// countSeries counts the series that had samples in a day. If the time is over, it says so in the answer.
func (a *api) countSeries(ctx context.Context, key cardinalityKey) (view *top.ViewCardinality, err error) {
	within, cancel := context.WithTimeout(ctx, cardinalityTime)
	defer cancel()
	to := key.from + (24 * time.Hour).Milliseconds() - 1
	q, err := a.Queryable.Querier(key.from, to)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	is := labels.MustNewMatcher(labels.MatchNotEqual, model.MetricNameLabel, "")
	if key.metric != "" {
		is = labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, key.metric)
	}
	hints := &storage.SelectHints{Start: key.from, End: to, Func: "series"} // no samples are read
	set := q.Select(within, false, hints, is)
	view = &top.ViewCardinality{Metric: key.metric, Label: key.label}
	if key.metric == "" {
		a.countMetrics(within, set, view, int(key.limit))
	} else {
		a.countLabels(within, set, view, int(key.limit))
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case within.Err() != nil:
		view.Short = fmt.Sprintf("there was no time for more series than these in %v", cardinalityTime)
	case set.Err() != nil:
		return nil, set.Err()
	}
	for _, why := range set.Warnings() { // a store is broken, or lacks samples
		view.Short = cmp.Or(view.Short, why.Error())
	}
	return view, nil
}

// countMetrics counts the series of each metric, until ctx is done.
func (a *api) countMetrics(ctx context.Context, set storage.SeriesSet, view *top.ViewCardinality, limit int) {
	counts := map[string]int{}
	for ctx.Err() == nil && set.Next() {
		name := set.At().Labels().Get(model.MetricNameLabel)
		n, known := counts[name]
		if !known {
			if len(counts) >= maxCountedMetrics {
				view.Short = fmt.Sprintf("there are more than %d metrics", maxCountedMetrics)
				break
			}
			name = strings.Clone(name)
		}
		counts[name] = n + 1
		view.Series++
	}
	view.Counts, view.Others = top.MostSeries(counts, limit)
}

// countLabels counts the series of a metric by label, until ctx is done.
func (a *api) countLabels(ctx context.Context, set storage.SeriesSet, view *top.ViewCardinality, limit int) {
	c := top.NewCardinality(view.Label)
	for ctx.Err() == nil && set.Next() {
		if !c.Add(set.At().Labels()) {
			view.Short = fmt.Sprintf("there was no memory for more series than %d", c.Series())
			break
		}
	}
	view.Series, view.Labels = c.Series(), c.Labels()
	if view.Label != "" {
		view.Values, view.Others = c.Values(limit)
	}
}
