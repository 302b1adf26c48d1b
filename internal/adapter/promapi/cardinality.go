package promapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/semaphore"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/top"
)

const (
	// cardinalityAge is how old an answer may be that is given again.
	cardinalityAge = 30 * time.Second

	// maxCardinalities bounds the answers that are kept, each of at most some kB.
	maxCardinalities = 64

	// maxDays bounds the days of an answer.
	maxDays = 31
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

// cardinalityKey is what a request asks for.
type cardinalityKey struct {
	dayOf              // the last day
	label       string // of the metric
	days, limit int
}

type keptCardinality struct {
	at time.Time
	*top.ViewCardinality
}

// maxListed bounds the rows of a list, as names and values may be long.
const maxListed = 1000

// cardinality answers how many series there were in a day, in UTC, in all stores: of each metric, or of one metric by
// label, with what each label costs. With `days` it also answers how many there were in each of the last days.
func (a *api) cardinality(r *http.Request) (any, error) {
	key, err := a.askedCardinality(r)
	if err != nil {
		return nil, err
	}
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
	c.keep(key, keptCardinality{a.Now(), view})
	return view, nil
}

// askedCardinality reads the parameters of a request.
func (a *api) askedCardinality(r *http.Request) (key cardinalityKey, err error) {
	for _, p := range []struct {
		name         string
		preset, most int
		to           *int
	}{{"limit", 20, maxListed, &key.limit}, {"days", 1, maxDays, &key.days}} {
		if *p.to, err = number(r, p.name, p.preset); err != nil {
			return key, err
		}
		if *p.to < 1 || *p.to > p.most {
			return key, parameterError(fmt.Sprintf("%s must be between 1 and %d", p.name, p.most))
		}
	}
	day := a.Now().UTC().Truncate(24 * time.Hour)
	if text := r.FormValue("day"); text != "" {
		if day, err = time.Parse(time.DateOnly, text); err != nil {
			return key, parameterError(fmt.Sprintf("day = %.40q: want a day in UTC, such as 2026-11-28", text))
		}
	}
	key.from, key.metric, key.label = day.UnixMilli(), r.FormValue("metric"), r.FormValue("label")
	if key.label != "" && key.metric == "" {
		return key, parameterError("label needs a metric")
	}
	key.tenant, _ = tenant.FromContext(r.Context())
	return key, nil
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

// countSeries counts the series of the last day, and then of the days before it. If the time is over, it says so in
// the answer.
func (a *api) countSeries(ctx context.Context, key cardinalityKey) (*top.ViewCardinality, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cardinalityTime, errNoTime)
	defer cancel()
	view := &top.ViewCardinality{Metric: key.metric, Label: key.label, Day: dayText(key.from)}
	var last dayCounts
	var err error
	if key.metric == "" {
		last, view.Short, err = a.countMetrics(ctx, key.dayOf)
		view.Series = last.series()
		view.Counts, view.Others = top.MostSeries(last, key.limit)
	} else {
		err = a.countLabels(ctx, view, key)
	}
	if err == nil && key.days > 1 {
		err = a.addDays(ctx, view, last, key)
	}
	return view, err
}

// countLabels counts the series of a metric by label.
func (a *api) countLabels(ctx context.Context, view *top.ViewCardinality, key cardinalityKey) (err error) {
	c := top.NewCardinality(view.Label)
	view.Short, err = a.readDay(ctx, key.dayOf, func(ls labels.Labels) (full string) {
		if !c.Add(ls) {
			return fmt.Sprintf("there was no memory for more series than %d", c.Series())
		}
		return ""
	})
	view.Series, view.Labels = c.Series(), c.Labels()
	if view.Label != "" {
		view.Values, view.Others = c.Values(key.limit)
	}
	return err
}

// addDays adds the days before the last one, and the metrics that have grown. `last` has the metrics of the last day.
func (a *api) addDays(ctx context.Context, view *top.ViewCardinality, last dayCounts, key cardinalityKey) error {
	view.Days = []top.DayCount{{Day: view.Day, Series: view.Series, Short: view.Short}}
	var first dayCounts // the first day that has series and an exact count
	var since string
	day := key.dayOf
	for range key.days - 1 {
		day.from -= dayMillis
		counts, short, err := a.countMetrics(ctx, day)
		if err != nil {
			return err
		}
		view.Days = append(view.Days, top.DayCount{Day: dayText(day.from), Series: counts.series(), Short: short})
		if short == "" && len(counts) > 0 {
			first, since = counts, dayText(day.from)
		}
	}
	if key.metric == "" && view.Short == "" && first != nil {
		view.Since, view.Grown = since, top.MostGrown(first, last, key.limit)
	}
	view.Short = top.ShortDays(view.Days)
	return nil
}

func dayText(from int64) string { return time.UnixMilli(from).UTC().Format(time.DateOnly) }
