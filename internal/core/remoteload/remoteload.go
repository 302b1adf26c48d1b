// Package remoteload makes requests of remote write to measure receivers with: the same
// bytes for the same configuration, and exact totals of what was handed out. It encodes
// and compresses all requests beforehand, in a way that leaves the bytes of each sample
// as they are, so that the next round of a request is its memory with other times and
// values, and a sender pays for the system call alone. Sending, and at what rate, is
// internal/adapter/loadgen's.
package remoteload

import (
	"fmt"
	"math"
)

// Config says what the requests are like.
type Config struct {
	Seed    uint64
	Name    string // value of the label "job"; empty for one of the seed and the first time, which no other load has
	Version int    // of remote write: 1 or 2
	Series  int    // at a time, 1 to MaxSeries; each has one sample a round
	Labels  int    // of each series, MinLabels to MaxLabels, the name among them
	Batch   int    // samples a request, 1 to MaxBatch

	Begin    int64 // Unix milliseconds: the time of the first round's samples
	Interval int64 // milliseconds from round to round

	// NewShare is the part of the series, from 0 to 1, that is replaced from one round
	// to the next by series that never were before. Whole pods are, with all that they
	// have, as in a deploy.
	NewShare float64
}

const (
	MaxSeries = 10_000_000 // about 100 bytes each
	MinLabels = 7
	MaxLabels = 50
	MaxBatch  = 100_000 // 25 MB decompressed

	// Times are written in six bytes, which they need between 1971 and 2109.
	minTime = 1 << 35
	maxTime = 1<<42 - 1
)

// Standard is the load that servers are compared by.
func Standard() Config {
	return Config{Seed: 1, Version: 1, Series: 100_000, Labels: MinLabels, Batch: 2000, Interval: 15_000}
}

// Check says what is wrong with the configuration.
func (c Config) Check() error {
	switch {
	case c.Version != 1 && c.Version != 2:
		return fmt.Errorf("version %d of remote write: must be 1 or 2", c.Version)
	case c.Series < 1 || c.Series > MaxSeries:
		return fmt.Errorf("%d series: must be 1 to %d", c.Series, MaxSeries)
	case c.Labels < MinLabels || c.Labels > MaxLabels:
		return fmt.Errorf("%d labels: must be %d to %d", c.Labels, MinLabels, MaxLabels)
	case c.Batch < 1 || c.Batch > MaxBatch:
		return fmt.Errorf("%d samples a request: must be 1 to %d", c.Batch, MaxBatch)
	case c.Interval < 1:
		return fmt.Errorf("%d ms from round to round: must be 1 or more", c.Interval)
	case c.Begin < minTime || c.Begin > maxTime/2:
		return fmt.Errorf("the first samples are of %d ms: is no time of these days", c.Begin)
	case !(c.NewShare >= 0 && c.NewShare <= 1):
		return fmt.Errorf("new series: must be 0 to 1 of all, got %g", c.NewShare)
	}
	return nil
}

// Job is the value of the label "job", which all series of the load have. Loads with the
// same Name go on with each other's series.
func (c Config) Job() string {
	if c.Name != "" {
		return c.Name
	}
	return fmt.Sprintf("bench-%d-%d", c.Seed, c.Begin)
}

// Time is that of a round's samples, in Unix milliseconds.
func (c Config) Time(round int) int64 { return c.Begin + int64(round)*c.Interval }

// Requests is how many requests a round has.
func (c Config) Requests() int { return (c.Series + c.Batch - 1) / c.Batch }

// pods is how many pods the series are of.
func (c Config) pods() int { return (c.Series + seriesPerPod - 1) / seriesPerPod }

// generation is how often a pod has been replaced when a round begins: as many are a round
// as NewShare wants, one after the other.
func (c Config) generation(pod, round int) int {
	replaced := int(math.Floor(c.NewShare*float64(c.pods())*float64(round) + 1e-9))
	if replaced <= pod {
		return 0
	}
	return (replaced-pod-1)/c.pods() + 1
}

// Load has the requests of a round, and makes those of the next in their place.
type Load struct {
	Config
	requests []request
}

// New renders the load.
func New(c Config) (*Load, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	l := &Load{Config: c, requests: make([]request, c.Requests())}
	r := newRenderer(c)
	for k := range l.requests {
		first := k * c.Batch
		l.requests[k] = r.request(first, min(first+c.Batch, c.Series))
	}
	return l, nil
}

// request is one of a round's, as it was in the last one.
type request struct {
	first   int       // of its series
	values  []float64 // of each, in the last round
	body    []byte    // compressed
	raw     int       // bytes of the body before that
	samples []uint32  // where in body the last bytes of each value are
	times   []timeByte
	pods    []pod
	rounds  int // that were rendered
}

// timeByte is where in a body a byte of a round's time stands. There are few: the others
// are copies.
type timeByte struct {
	at    uint32
	index byte
}

// pod is a part of a request: the series [from, to) in it.
type pod struct {
	number   int
	from, to int
	digits   []uint32 // where in body its number stands; empty if no pod is ever replaced
}

// Request is what is to be sent.
type Request struct {
	Body    []byte // compressed; the load's until the request's next round
	Raw     int    // bytes before that
	Samples int    // each of another series
	New     int    // series that never were before
}

// Next renders request k of the next round. Different requests may be rendered at the same
// time. The memory of one is used again: it must have been sent by then.
func (l *Load) Next(k int) Request {
	r := &l.requests[k]
	round := r.rounds
	r.rounds++
	out := Request{Body: r.body, Raw: r.raw, Samples: len(r.values)}
	for i := range r.pods {
		p := &r.pods[i]
		generation := l.generation(p.number, round)
		if round > 0 && generation == l.generation(p.number, round-1) {
			continue
		}
		out.New += p.to - p.from
		if round > 0 {
			clear(r.values[p.from:p.to]) // counting begins anew
		}
		for _, at := range p.digits {
			putDigits(r.body[at:at+podDigits], p.number+generation*l.pods())
		}
	}
	r.fill(l.Seed, round, l.Time(round))
	return out
}

// fill writes a round's values and times into the body.
func (r *request) fill(seed uint64, round int, time int64) {
	var when [timeBytes]byte
	putTime(when[:], time)
	for _, t := range r.times {
		r.body[t.at] = when[t.index]
	}
	salt := mix(seed ^ uint64(round)<<32)
	for i, at := range r.samples {
		s := &slots[(r.first+i)%seriesPerPod]
		v := s.next(r.values[i], mix(salt+uint64(r.first+i)))
		r.values[i] = v
		if s.wide {
			putWide(r.body[at-highBytes:], v)
		} else {
			putHigh(r.body[at:], v)
		}
	}
}

// next is the value of a series after the last one. Half of all counters stand still, as
// most of a real service do at any time. They begin anew where they would no more be round.
func (s *slot) next(last float64, random uint64) float64 {
	step := random & 15
	switch {
	case s.kind == gauge:
		return float64(random%10_000) / 8
	case step > 7:
		return last
	case last+7 >= maxRound:
		return 0
	case s.wide:
		return last + float64(step)*0.0371
	}
	return last + float64(step)
}

// mix makes one number of another, evenly (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Totals are what requests hold together.
type Totals struct {
	Requests, Samples, NewSeries uint64
	Bytes, RawBytes              uint64 // compressed, and before
}

// Add adds a request.
func (t *Totals) Add(r Request) {
	t.Requests++
	t.Samples += uint64(r.Samples)
	t.NewSeries += uint64(r.New)
	t.Bytes += uint64(len(r.Body))
	t.RawBytes += uint64(r.Raw)
}
