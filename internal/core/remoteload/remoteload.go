// Package remoteload makes remote-write requests to measure receivers. The same configuration gives
// the same bytes, and totals are exact. The package encodes and compresses all requests beforehand,
// but leaves the bytes of each sample uncompressed. So for the next round of a request it only
// overwrites times and values in place, and a sender pays only for the system call. adapter/loadgen
// sends the requests and sets the rate.
package remoteload

import (
	"fmt"
	"math"
)

// Config describes the requests.
type Config struct {
	Seed    uint64
	Name    string // value of the label "job"; if empty, one is made from Seed and Begin
	Version int    // version of remote write: 1 or 2
	Series  int    // series at a time, 1 to MaxSeries; each has one sample per round
	Labels  int    // labels per series, MinLabels to MaxLabels, including the name
	Batch   int    // samples per request, 1 to MaxBatch

	Begin    int64 // the time of the first round's samples, in Unix milliseconds
	Interval int64 // milliseconds between rounds

	// NewShare is the part of the series, from 0 to 1, that new series replace in each round. As in
	// a deploy, a pod is always replaced as a whole.
	NewShare float64
}

const (
	MaxSeries = 10_000_000 // each takes about 100 bytes
	MinLabels = 7
	MaxLabels = 50
	MaxBatch  = 100_000 // 25 MB when decompressed

	// Bounds of times, in Unix milliseconds: times between 1971 and 2109 take six bytes.
	minTime = 1 << 35
	maxTime = 1<<42 - 1
)

// Standard returns the load with which we compare servers.
func Standard() Config {
	return Config{Seed: 1, Version: 1, Series: 100_000, Labels: MinLabels, Batch: 2000, Interval: 15_000}
}

// Check returns what is wrong with the configuration, or nil.
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
		return fmt.Errorf("%d ms between rounds: must be 1 or more", c.Interval)
	case c.Begin < minTime || c.Begin > maxTime/2:
		return fmt.Errorf("the first samples are at %d ms: must be a time between 1971 and 2109", c.Begin)
	case !(c.NewShare >= 0 && c.NewShare <= 1):
		return fmt.Errorf("share of new series: must be 0 to 1, got %g", c.NewShare)
	}
	return nil
}

// Job returns the value of the label "job" of all series of the load. A load continues the series
// of an earlier load with the same Name.
func (c Config) Job() string {
	if c.Name != "" {
		return c.Name
	}
	return fmt.Sprintf("bench-%d-%d", c.Seed, c.Begin)
}

// Time returns the time of a round's samples, in Unix milliseconds.
func (c Config) Time(round int) int64 { return c.Begin + int64(round)*c.Interval }

// Requests returns how many requests a round has.
func (c Config) Requests() int { return (c.Series + c.Batch - 1) / c.Batch }

// pods returns how many pods the series belong to.
func (c Config) pods() int { return (c.Series + seriesPerPod - 1) / seriesPerPod }

// generation returns how many times a pod has been replaced when a round begins. Each round replaces the
// share NewShare of the pods, and the rounds go through the pods in order.
func (c Config) generation(pod, round int) int {
	replaced := int(math.Floor(c.NewShare*float64(c.pods())*float64(round) + 1e-9))
	if replaced <= pod {
		return 0
	}
	return (replaced-pod-1)/c.pods() + 1
}

// Load has the requests of a round, and overwrites them with the requests of the next round.
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

// request holds a request with the content of its last round.
type request struct {
	first   int       // index of its first series
	values  []float64 // value of each series in the last round
	body    []byte    // compressed
	raw     int       // uncompressed bytes of the body
	samples []uint32  // positions in body of the last bytes of each value
	times   []timeByte
	pods    []pod
	rounds  int // rendered rounds
}

// timeByte is the position of a byte of the round's time in a body. A body has few such bytes,
// since all other occurrences of the time are copies in snappy's format.
type timeByte struct {
	at    uint32
	index byte
}

// pod is a pod's part of a request: the series [from, to) of the request.
type pod struct {
	number   int
	from, to int
	digits   []uint32 // positions of the pod's number in body; empty if pods are never replaced
}

// Request is a request to send.
type Request struct {
	Body    []byte // compressed; owned by the load, and valid until the request's next round
	Raw     int    // uncompressed bytes
	Samples int    // one for each series
	New     int    // new series
}

// Next renders request k for its next round. Different requests may be rendered at the same time.
// Next overwrites the memory of the request's previous round, which must have been sent before.
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
			clear(r.values[p.from:p.to]) // counters restart
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

// next returns the value that follows `last` in a series. In each round, half of all counters do not
// grow, since most counters of a real service do not either. A counter restarts before it reaches
// maxRound.
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

// mix returns a well-distributed number made from x (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Totals are the sums over requests.
type Totals struct {
	Requests, Samples, NewSeries uint64
	Bytes, RawBytes              uint64 // compressed and uncompressed bytes
}

// Add adds a request.
func (t *Totals) Add(r Request) {
	t.Requests++
	t.Samples += uint64(r.Samples)
	t.NewSeries += uint64(r.New)
	t.Bytes += uint64(len(r.Body))
	t.RawBytes += uint64(r.Raw)
}
