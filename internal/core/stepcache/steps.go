package stepcache

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// Steps are consecutive steps of a query with their results. They are never changed.
type Steps struct {
	State State  // the data of all the steps
	Width uint32 // of Reading

	from, to int64 // the first step and the last one, Unix ms
	span     int64 // the longest time that a query asked for, ms: so much is kept before the last step
	series   promql.Matrix
	bytes    int64
}

// Whole returns the steps of a query that was evaluated as a whole, in their own memory. It is not ok if the result has
// histograms, which are not kept.
func Whole(q Query, result promql.Matrix, state State, width uint32) (s *Steps, ok bool) {
	none := Steps{from: q.Start, to: q.Start - q.Step}
	return none.Join(q, q.Start-q.Step, result, state, width)
}

// Last returns the last step of a query that need not be evaluated. Samples before the time `same` are as they were. It
// leaves at least one step to evaluate: this shows errors and notes that any evaluation has by now. It is not ok if no
// step is kept.
func (s *Steps) Last(q Query, same int64) (last int64, ok bool) {
	if same <= q.Start || s.from > q.Start {
		return 0, false
	}
	last = min(s.to, q.Last-q.Step)
	if last >= same { // the last step before `same`
		last -= (last - same + q.Step) / q.Step * q.Step
	}
	return last, q.Start <= last
}

// Join adds the result of evaluated steps, from the one after `last` to the end of the query. It returns all of them,
// up to the longest time that a query asked for. `state` is the state before that evaluation. It is not ok if the
// result has histograms.
func (s *Steps) Join(q Query, last int64, rest promql.Matrix, state State, width uint32) (all *Steps, ok bool) {
	all = &Steps{State: state, Width: width, to: q.Last, span: max(s.span, q.Last-q.Start)}
	all.from = max(s.from, q.Last-all.span)
	points := 0
	for _, of := range rest {
		if len(of.Histograms) > 0 {
			return nil, false
		}
		points += len(of.Floats)
	}
	for _, of := range s.series {
		points += len(between(of.Floats, all.from, last))
	}
	room := make([]promql.FPoint, 0, points)
	all.series = make(promql.Matrix, 0, max(len(s.series), len(rest)))
	for old, new := s.series, rest; len(old)+len(new) > 0; {
		order := compare(old, new)
		begun := len(room)
		var of labels.Labels
		if order >= 0 {
			of = new[0].Metric
		}
		if order <= 0 {
			of = old[0].Metric
			room = append(room, between(old[0].Floats, all.from, last)...)
			old = old[1:]
		} else {
			of = of.Copy() // an answer's labels may be in memory of a file
		}
		if order >= 0 {
			room = append(room, new[0].Floats...)
			new = new[1:]
		}
		if floats := room[begun:len(room):len(room)]; len(floats) > 0 {
			all.series = append(all.series, promql.Series{Metric: of, Floats: floats})
			all.bytes += seriesBytes + int64(of.ByteSize())
		}
	}
	all.bytes += fixedBytes + int64(len(q.Text)) + pointBytes*int64(points)
	return all, true
}

// Memory in bytes.
const (
	fixedBytes  = 512 // of a query
	seriesBytes = 128
	pointBytes  = 16
)

// compare compares the first series of two results by their labels. A result without series comes last.
func compare(a, b promql.Matrix) int {
	switch {
	case len(b) == 0:
		return -1
	case len(a) == 0:
		return 1
	}
	return labels.Compare(a[0].Metric, b[0].Metric)
}

// between returns the points from time `first` to time `last`.
func between(points []promql.FPoint, first, last int64) []promql.FPoint {
	at := func(p promql.FPoint, t int64) int { return int(min(1, max(-1, p.T-t))) }
	from, _ := slices.BinarySearchFunc(points, first, at)
	to, _ := slices.BinarySearchFunc(points, last+1, at)
	return points[from:max(from, to)]
}

// Answer returns the result of a query, and how many samples it has. Its memory belongs to the Steps.
func (s *Steps) Answer(q Query) (result promql.Matrix, samples int) {
	result = make(promql.Matrix, 0, len(s.series))
	for _, of := range s.series {
		if floats := between(of.Floats, q.Start, q.Last); len(floats) > 0 {
			result = append(result, promql.Series{Metric: of.Metric, Floats: floats})
			samples += len(floats)
		}
	}
	return result, samples
}

// Longer reports whether the steps go on after the end of a query. Then they are worth more than those of the query.
func (s *Steps) Longer(q Query) bool { return s.to > q.Last }
