// Package top finds the busiest metrics, senders and labels: it counts samples by metric, datagrams
// by sender and values by label. Each table is bounded, and one row counts everything that has no
// room in it. The collector feeds it only while a client asks for it.
package top

import (
	"cmp"
	"slices"
)

// Span is how many seconds rates look back: DogStatsD clients may flush only every ten seconds.
const Span = 10

// Amount is the traffic of some seconds.
type Amount struct {
	Count     uint64 // samples, datagrams or requests
	Bytes     uint64 // of datagrams, or of decompressed requests
	Samples   uint64 // of requests
	Lines     uint64 // in datagrams
	Malformed uint64 // malformed lines, included in Lines
}

func (a *Amount) add(b Amount) {
	a.Count += b.Count
	a.Bytes += b.Bytes
	a.Samples += b.Samples
	a.Lines += b.Lines
	a.Malformed += b.Malformed
}

// recent is the traffic of each of the last seconds. It has two seconds more than rates use: one
// that is being filled, and one that may be late.
type recent [Span + 2]second

type second struct {
	at int64 // Unix seconds; a place is reused for a later second
	Amount
}

func (r *recent) add(at int64, a Amount) {
	s := &r[uint64(at)%uint64(len(r))]
	if s.at != at {
		*s = second{at: at}
	}
	s.add(a)
}

// sum returns the traffic in the seconds [from, to).
func (r *recent) sum(from, to int64) (sum Amount) {
	for i := range r {
		if s := &r[i]; s.at >= from && s.at < to {
			sum.add(s.Amount)
		}
	}
	return sum
}

// rows counts by key, for a bounded number of keys. A key without samples for Span seconds makes
// room for others.
type rows[K comparable] struct {
	bound  int
	byKey  map[K]*recent
	pruned int64 // second of the last search for keys to remove
}

func newRows[K comparable](bound int) rows[K] { return rows[K]{bound: bound, byKey: map[K]*recent{}} }

// at is a lookup: it returns the row of a key, or nil if there is no room for it.
func (r *rows[K]) at(now int64, key K) *recent {
	row := r.byKey[key]
	if row == nil && r.room(now) {
		row = r.insert(key)
	}
	return row
}

// insert adds the row of a key that has none. The caller has seen that there is room.
func (r *rows[K]) insert(key K) *recent {
	row := new(recent)
	r.byKey[key] = row
	return row
}

func (r *rows[K]) room(now int64) bool {
	if len(r.byKey) >= r.bound && r.pruned != now { // at most once a second, since the search takes time
		r.pruned = now
		for key, row := range r.byKey {
			if row.sum(now-Span, now+1).Count == 0 {
				delete(r.byKey, key)
			}
		}
	}
	return len(r.byKey) < r.bound
}

// Rest sums up the rows that a list leaves out.
type Rest struct {
	Rows int // not counting keys that found no room, whose number is not known
	Amount
}

// busiest sorts rows by count and cuts them to a limit.
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
