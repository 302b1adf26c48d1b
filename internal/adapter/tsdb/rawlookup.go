package tsdb

import (
	"fmt"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/seriescache"
	"github.com/freshet-io/freshet/internal/core/write"
)

// rawLookup finds the series for the labels of a request. It looks at labels only if their spelling
// is new, or if a later phase needs them.
type rawLookup struct {
	cache    *seriescache.Cache
	cursor   seriescache.Cursor
	terms    uint64 // the generation of the spellings in cache
	resolved int    // how often labels were looked at since the database opened
}

// rawFound is a series that was looked up. The head has it if entry is not nil.
type rawFound struct {
	sent   rawSent
	entry  *seriescache.Series // what the cache remembers of it; nil if the head does not have it
	number seriescache.Number  // of entry
	labels labels.Labels       // empty until needed; never empty if entry is nil
}

// begin prepares the look-up of the series of a request.
func (l *rawLookup) begin(r *write.Request) {
	if l.terms != r.Terms.Generation {
		l.cache.ForgetSpellings()
		l.terms = r.Terms.Generation
	}
	l.cursor.Begin()
}

// find looks up the series f.sent, and reports whether to write it. If find returns false, the parts of
// the series are dropped or refused. If the spelling is new, f has labels and no entry.
func (l *rawLookup) find(f *rawFound) bool {
	f.number = l.cache.Find(&l.cursor, f.sent.request.Request, f.sent.series)
	switch f.number {
	case seriescache.Dropped:
		f.sent.drop(f.sent.parts())
		return false
	case 0:
		return l.resolve(f)
	}
	f.entry = l.cache.At(f.number)
	if f.sent.hasMetadata() && !f.entry.Described {
		f.entry.Described = true
		l.spell(f)
		f.describe()
	}
	return true
}

// resolve finds the labels of a series whose spelling is new.
func (l *rawLookup) resolve(f *rawFound) bool {
	l.resolved++
	ls, refused := f.sent.resolve()
	switch {
	case refused != nil:
		f.sent.refuse(refused.Reason, f.sent.parts(), refused.Cause)
		return false
	case ls.IsEmpty():
		l.cache.Add(&l.cursor, f.sent.request.Request, f.sent.series, seriescache.Dropped)
		f.sent.drop(f.sent.parts())
		return false
	}
	f.labels = ls
	if f.sent.hasMetadata() {
		f.describe()
	}
	return true
}

// describe passes on the metadata of the series' metric.
func (f *rawFound) describe() {
	r := f.sent.request
	r.Described = append(r.Described, write.Description{
		Metric: f.labels.Get(model.MetricNameLabel), Metadata: f.sent.series.Metadata,
	})
}

// spell finds the labels of a series that was found by its spelling.
func (l *rawLookup) spell(f *rawFound) labels.Labels {
	if f.labels.IsEmpty() {
		l.resolved++
		var refused *outcome.Refusal
		if f.labels, refused = f.sent.resolve(); refused != nil || f.labels.IsEmpty() {
			panic(fmt.Sprintf("BUG: the rules took a series and now, in the same generation, do not: %v", refused))
		}
	}
	return f.labels
}

// hash returns the hash of the series' labels.
func (f *rawFound) hash() recentseries.Hash {
	if f.entry != nil {
		return recentseries.Hash(f.entry.Hash)
	}
	return recentseries.Of(f.labels)
}

// learn remembers the reference that the head gave a series, and the bytes in which the request spelled
// the series, if that spelling is new. A series that is new to the cache has no sample newer than
// `lastT`, in Unix milliseconds.
func (l *rawLookup) learn(f *rawFound, ref uint64, lastT int64) {
	if f.entry != nil {
		if f.entry.Ref != ref {
			l.cache.SetRef(f.number, ref)
		}
		return
	}
	if f.number = l.cache.ByRef(ref); f.number == 0 {
		f.number = l.cache.NewSeries(ref, uint64(recentseries.Of(l.spell(f))), lastT)
	}
	l.cache.Add(&l.cursor, f.sent.request.Request, f.sent.series, f.number)
	f.entry = l.cache.At(f.number)
	f.entry.Described = f.entry.Described || f.sent.hasMetadata() // l.resolve has just passed the metadata on
}
