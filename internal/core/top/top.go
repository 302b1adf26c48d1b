// Package top counts what is busiest, for people who look: samples by metric,
// datagrams by sender, values by label. Everything in it is bounded, and what a
// bound turned away is counted together. It is fed only while somebody looks; who
// does, and since when, is the collector's business.
package top

import (
	"cmp"
	"slices"
)

// Span is how many seconds back rates look: DogStatsD clients flush as rarely as
// every ten.
const Span = 10

// Amount is what came in some seconds.
type Amount struct {
	Count     uint64 // samples, datagrams or requests
	Bytes     uint64 // of datagrams, or of requests once decompressed
	Samples   uint64 // of requests
	Lines     uint64 // in datagrams
	Malformed uint64 // of the lines
}

func (a *Amount) add(b Amount) {
	a.Count += b.Count
	a.Bytes += b.Bytes
	a.Samples += b.Samples
	a.Lines += b.Lines
	a.Malformed += b.Malformed
}

// recent is what came in each of the last seconds. There are two more than are
// looked at: one that is being filled, and one that may be late.
type recent [Span + 2]second

type second struct {
	at int64 // Unix seconds; a place is used again when another second comes
	Amount
}

func (r *recent) add(at int64, a Amount) {
	s := &r[uint64(at)%uint64(len(r))]
	if s.at != at {
		*s = second{at: at}
	}
	s.add(a)
}

// sum is what came from one second to another, which is not part of it.
func (r *recent) sum(from, to int64) (sum Amount) {
	for i := range r {
		if s := &r[i]; s.at >= from && s.at < to {
			sum.add(s.Amount)
		}
	}
	return sum
}

// rows is what came by key, of a bounded number of keys. A key that nothing came
// for in Span seconds gives way.
type rows[K comparable] struct {
	bound  int
	byKey  map[K]*recent
	pruned int64 // second in which it was last looked who gives way
}

func newRows[K comparable](bound int) rows[K] { return rows[K]{bound: bound, byKey: map[K]*recent{}} }

// at returns the row of a key, nil if there is no room for it.
func (r *rows[K]) at(now int64, key K) *recent {
	row := r.byKey[key]
	if row == nil && r.room(now) {
		row = new(recent)
		r.byKey[key] = row
	}
	return row
}

func (r *rows[K]) room(now int64) bool {
	if len(r.byKey) >= r.bound && r.pruned != now { // looking costs time: once a second
		r.pruned = now
		for key, row := range r.byKey {
			if row.sum(now-Span, now+1).Count == 0 {
				delete(r.byKey, key)
			}
		}
	}
	return len(r.byKey) < r.bound
}

// Rest is the rows that a list leaves out.
type Rest struct {
	Rows int // without those that a bound turned away, whose number nobody knows
	Amount
}

// busiest sorts rows by what came, and cuts them to a limit.
func busiest[R any](all []R, limit int, amount func(R) Amount, tie func(a, b R) int) (kept []R, rest Rest) {
	slices.SortFunc(all, func(a, b R) int {
		return cmp.Or(cmp.Compare(amount(b).Count, amount(a).Count), tie(a, b))
	})
	kept = all[:min(limit, len(all))]
	for _, r := range all[len(kept):] {
		rest.Rows++
		rest.add(amount(r))
	}
	return kept, rest
}
