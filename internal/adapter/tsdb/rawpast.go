package tsdb

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/core/seriescache"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// The store is asked about a late sample in 5 us, of which finding the series takes most. Late samples seldom come
// alone: they are a backlog, or one of two senders is behind the other. So the answer covers the samples that follow,
// too, and the next late samples of the series find their places in it.
const (
	pastSamples = 16 // samples of a series that are remembered
	pastPage    = 64 // series whose memory is allocated together
	pastPages   = 2048

	// mostPastPages is how many pages the stores of a process have together: 64 MB, for 240,000 series.
	mostPastPages = 64_000_000 / (pastPage * 280)

	// pastIdle is how long after the last late sample of a tenant the memory is released, in milliseconds.
	pastIdle = 10 * 60_000
)

// rawPasts remembers a rawPast for each series that got late samples. Its memory grows to 37 MB at 131,072 series.
// After that series take each other's places, which costs time alone.
type rawPasts struct {
	spare *atomic.Int64        // pages that all stores of the process may still have
	pages []*[pastPage]rawPast // none without late samples
	used  int64                // arrival of the last request with a late sample, in Unix milliseconds
	now   int64                // arrival of the present request
}

// begin prepares for the samples of a request.
func (p *rawPasts) begin(arrival int64) {
	if p.now = arrival; p.pages != nil && arrival-p.used > pastIdle {
		p.forget()
	}
}

// forget drops what is remembered. It must be called when the store closes.
func (p *rawPasts) forget() {
	for _, page := range p.pages {
		if page != nil {
			p.spare.Add(1)
		}
	}
	p.pages = nil
}

// of returns what is remembered of a series, nil for nothing.
func (p *rawPasts) of(number seriescache.Number, entry *seriescache.Series) *rawPast {
	if entry == nil || !entry.Past || p.pages == nil {
		return nil
	}
	if page := p.pages[number/pastPage%pastPages]; page != nil {
		if past := &page[number%pastPage]; past.series == number {
			return past
		}
	}
	return nil
}

// place returns memory for a series, and begins to remember it. It returns nil if the stores have all their memory.
func (p *rawPasts) place(number seriescache.Number, entry *seriescache.Series) *rawPast {
	if p.pages == nil {
		p.pages = make([]*[pastPage]rawPast, pastPages)
	}
	page := &p.pages[number/pastPage%pastPages]
	if *page == nil {
		if p.spare.Add(-1) < 0 {
			p.spare.Add(1)
			return nil
		}
		*page = new([pastPage]rawPast)
	}
	past := &(*page)[number%pastPage]
	past.series, entry.Past = number, true
	return past
}

// rawPast has all samples of a series in a span of time, stored or waiting for the commit. All of them are floats.
//
// Shape: 280 bytes, without pointers.
type rawPast struct {
	series   seriescache.Number
	n        int32
	from, to int64 // Unix milliseconds; the span, with both ends; empty if to < from
	times    [pastSamples]int64
	bits     [pastSamples]uint64 // of the values
}

// covers reports whether the span has the time t.
func (p *rawPast) covers(t int64) bool { return p != nil && p.from <= t && t <= p.to }

// at returns the sample at time t, which the span covers, or nil if there is none.
func (p *rawPast) at(t int64) *tile.Point {
	i, found := slices.BinarySearch(p.times[:p.n], t)
	if !found {
		return nil
	}
	return &tile.Point{T: t, V: math.Float64frombits(p.bits[i])}
}

// begin empties the span, which then goes from the time `from` to `last`. The caller adds all stored samples of that
// time, in their order.
func (p *rawPast) begin(from, last int64) { p.n, p.from, p.to = 0, from, last }

// add adds the next stored sample, and reports whether there is room for more.
func (p *rawPast) add(x tile.Point) (more bool) {
	if x.H != nil {
		p.to = x.T - 1
		return false
	}
	p.times[p.n], p.bits[p.n] = x.T, math.Float64bits(x.V)
	if p.n++; p.n == pastSamples {
		p.to = x.T
	}
	return p.n < pastSamples
}

// appended is called for a sample that now waits for the commit. Before, no sample of the series was newer than `last`.
func (p *rawPast) appended(x rawValue, last int64) {
	switch {
	case p == nil || x.t < p.from || x.t > p.to && p.to < last:
		return // outside of the span
	case !x.isFloat():
		p.cut(x.t)
		return
	}
	i, _ := slices.BinarySearch(p.times[:p.n], x.t)
	if p.n == pastSamples {
		if i == 0 { // x, with which a backlog begins, is worth more than the newest sample
			p.cut(p.times[p.n-1])
		} else {
			p.from = p.times[0] + 1
			copy(p.times[:], p.times[1:])
			copy(p.bits[:], p.bits[1:])
			p.n--
			i--
		}
	}
	copy(p.times[i+1:], p.times[i:p.n])
	copy(p.bits[i+1:], p.bits[i:p.n])
	p.times[i], p.bits[i] = x.t, math.Float64bits(x.v)
	p.n++
	p.to = max(p.to, x.t)
}

// cut ends the span before time t.
func (p *rawPast) cut(t int64) {
	p.to = t - 1
	i, _ := slices.BinarySearch(p.times[:p.n], t)
	p.n = int32(i)
}
