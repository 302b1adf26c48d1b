package tile

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// classic counts a timer's values in the classic buckets of its policy. The stores see such a timer as
// several series.
type classic struct{}

// classicSeries returns the series of a timer in classic buckets, in the order of appendSamples: each
// bound, +Inf, the sum and the count.
func classicSeries(ls labels.Labels, bounds []float64) []*Series {
	name := ls.Get(model.MetricNameLabel)
	var all []*Series
	b := labels.NewBuilder(ls)
	b.Set(model.MetricNameLabel, name+"_bucket")
	for _, bound := range append(bounds[:len(bounds):len(bounds)], math.Inf(1)) {
		b.Set(model.BucketLabel, strconv.FormatFloat(bound, 'g', -1, 64))
		all = append(all, &Series{Labels: b.Labels(), Kind: series.Timer})
	}
	b.Del(model.BucketLabel)
	for _, suffix := range []string{"_sum", "_count"} {
		b.Set(model.MetricNameLabel, name+suffix)
		all = append(all, &Series{Labels: b.Labels(), Kind: series.Timer})
	}
	return all
}

func (classic) add(e *entry, t *openTile, inc *batch.Increment) bool {
	if len(inc.Classic) != len(e.policy.Bounds)+1 ||
		!e.bears(inc.Sum, classicSum) || !e.bears(total(inc.Classic), classicCount) {
		return false
	}
	t.addClassic(inc.Classic, inc.Sum)
	e.keepExemplar(t.end, inc.Exemplar)
	return true
}

func classicSum(a *amount) float64 { return a.has().sum }

func classicCount(a *amount) float64 { return total(a.has().classic) }

func total(counts []float64) (n float64) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (a *amount) addClassic(counts []float64, sum float64) {
	to := a.needs()
	if to.classic == nil {
		to.classic = make([]float64, len(counts))
	}
	for i, c := range counts {
		to.classic[i] += c
	}
	to.sum += sum
}

func (classic) absorb(e *entry, t *openTile) {
	if c := t.has(); c.classic != nil {
		e.total.addClassic(c.classic, c.sum)
	}
}

func (classic) appendSamples(e *entry, out []Sample, w Width, at int64, f form) []Sample {
	count, from := 0.0, len(out)
	buckets, counted := len(e.policy.Bounds)+1, e.total.has()
	for i, s := range e.has().classic {
		if i < buckets && counted.classic != nil {
			count += counted.classic[i]
		}
		v := count // the count of one bucket, or of all buckets
		if i == buckets {
			v = counted.sum
		}
		out = appendValue(out, s, at, f, v)
	}
	if x := e.takeExemplar(w, at); x != nil {
		bucket, _ := slices.BinarySearch(e.policy.Bounds, x.Value) // upper bounds are inclusive
		out[from+bucket].Exemplar = x
	}
	return out
}

func (classic) append(e *entry, t *openTile, dst []byte) []byte {
	if a := e.amount(t).has(); a.classic == nil {
		dst = appendAmount(dst, 0, 0, 0)
	} else {
		dst = appendAmount(dst, flagClassic, 0, 0)
		dst = binary.AppendUvarint(dst, uint64(len(a.classic)))
		for _, c := range a.classic {
			dst = appendFloat(dst, c)
		}
		dst = appendFloat(dst, a.sum)
	}
	return e.appendExemplar(t, appendSources(dst, nil))
}

func (classic) parse(e *entry, t *openTile, d *decoder) {
	if flags, _, _ := d.amount(flagClassic); flags != 0 {
		a, n := e.amount(t).needs(), d.count(8)
		if n != len(e.policy.Bounds)+1 {
			d.fail()
			return
		}
		for range n {
			a.classic = append(a.classic, d.float())
		}
		a.sum = d.float()
	}
	d.sources()
	e.parseExemplar(t, d)
}

func (classic) rises() bool { return true }
