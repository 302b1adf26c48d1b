package promapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/stepcache"
)

const (
	// cardinalityTime bounds the work of one answer of status/cardinality, however many days it has.
	cardinalityTime = 5 * time.Second

	// maxCountedMetrics bounds the metrics that are counted for one day. Each takes about 80 bytes, and an answer
	// has the counts of two days in memory: 32 MiB.
	maxCountedMetrics = 200_000

	// maxKeptMetrics bounds the metrics in the counts of all days that are kept: 16 MiB.
	maxKeptMetrics = 200_000

	// maxKeptDays bounds the days that are kept, as a day of one metric also takes some hundred bytes.
	maxKeptDays = 2000

	dayMillis = int64(24 * time.Hour / time.Millisecond)
)

// errNoTime is the cause that ends the context of a count.
var errNoTime = fmt.Errorf("there was no time for more series than these in %v", cardinalityTime)

// dayOf is a day whose series are counted, in UTC.
type dayOf struct {
	tenant string
	metric string // whose series are counted; empty for all metrics
	from   int64  // Unix milliseconds
}

// dayCounts has the series of each metric in a day. Nobody changes it once it is counted.
type dayCounts map[string]int

func (c dayCounts) series() (n int) {
	for _, of := range c {
		n += of
	}
	return n
}

// countMetrics counts the series of each metric in a day. `short` says why counts are too low, and is empty if they
// are exact. If an earlier request has counted the day, and its data are the same, nothing is read.
func (a *api) countMetrics(ctx context.Context, day dayOf) (counts dayCounts, short string, err error) {
	source := a.Engine.Source
	if counts, kept := a.keptDays.get(day, source); kept {
		return counts, "", nil
	}
	var before stepcache.State
	if source != nil {
		before = source.State(day.tenant)
	}
	counts = dayCounts{}
	short, err = a.readDay(ctx, day, func(ls labels.Labels) (full string) {
		name := ls.Get(model.MetricNameLabel)
		n, known := counts[name]
		if !known {
			if len(counts) >= maxCountedMetrics {
				return fmt.Sprintf("there are more than %d metrics", maxCountedMetrics)
			}
			name = strings.Clone(name)
		}
		counts[name] = n + 1
		return ""
	})
	if err == nil && short == "" {
		a.keptDays.keep(day, source, keptDay{before, counts})
	}
	return counts, short, err
}

// readDay passes the labels of each series that had samples in a day to `add`, which says when it is full. If series
// are missing, readDay returns why: ctx ended for the cause errNoTime, `add` is full, or a store is broken.
func (a *api) readDay(ctx context.Context, day dayOf, add func(labels.Labels) (full string)) (short string, err error) {
	if cause := context.Cause(ctx); errors.Is(cause, errNoTime) {
		return cause.Error(), nil
	}
	to := day.from + dayMillis - 1
	q, err := a.Queryable.Querier(day.from, to)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	is := labels.MustNewMatcher(labels.MatchNotEqual, model.MetricNameLabel, "")
	if day.metric != "" {
		is = labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, day.metric)
	}
	hints := &storage.SelectHints{Start: day.from, End: to, Func: "series"} // no samples are read
	set := q.Select(ctx, false, hints, is)
	for short == "" && ctx.Err() == nil && set.Next() {
		short = add(set.At().Labels())
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errNoTime):
		return cause.Error(), nil
	case cause != nil:
		return "", cause // the client is gone
	case set.Err() != nil:
		return "", set.Err()
	}
	for _, why := range set.Warnings() { // a store is broken, or lacks samples
		short = cmp.Or(short, why.Error())
	}
	return short, nil
}

// keptDays has counts of days that are over, so that the next request need not read these days again. Counts of single
// blocks would not do: a series in two blocks of a day is one.
type keptDays struct {
	days    map[dayOf]keptDay
	metrics int // in the counts of all days
}

type keptDay struct {
	before stepcache.State // of the tenant's data when the count began
	counts dayCounts
}

// get returns the counts of a day. It drops them if late samples, an import or the end of the retention may have
// changed them. So does each compaction, as another file may have other samples.
func (k *keptDays) get(day dayOf, source stepcache.Source) (counts dayCounts, kept bool) {
	d, kept := k.days[day]
	if kept && !d.same(day, source) {
		delete(k.days, day)
		k.metrics -= len(d.counts)
		kept = false
	}
	return d.counts, kept
}

// keep keeps the counts of a day that is over. Without a source it keeps none.
func (k *keptDays) keep(day dayOf, source stepcache.Source, d keptDay) {
	if source == nil || len(d.counts) == 0 || !d.same(day, source) { // a day without series costs nothing
		return
	}
	if k.metrics+len(d.counts) > maxKeptMetrics || len(k.days) >= maxKeptDays {
		*k = keptDays{}
	}
	if k.days == nil {
		k.days = map[dayOf]keptDay{}
	}
	k.days[day] = d
	k.metrics += len(d.counts)
}

// same reports whether the data of a day are as they were before it was counted.
func (d keptDay) same(day dayOf, source stepcache.Source) bool {
	return source.Same(day.tenant, d.before) >= day.from+dayMillis
}
