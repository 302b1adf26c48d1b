package top

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// HistoryStep is the time of one value of a history, in seconds, and HistorySteps is the number of values: the
	// last 15 minutes.
	HistoryStep  = 15
	HistorySteps = 60

	// rateSteps is how many whole steps a rate looks back: clients of a minute's interval send once in them.
	rateSteps = 4

	// maxSources bounds the senders of all tenants: 4,096 x 1,900 bytes = 7.8 MB.
	maxSources = 4096
)

// Sources remembers the senders of remote write and OTLP requests: when each was heard last, how old its samples are,
// how much it sent in the last seconds and minutes, and what of it was refused. Requests are few and each has many
// samples, so counting them all the time is cheap. It is safe for concurrent use.
type Sources struct {
	mu       sync.Mutex
	byKey    map[Requester]*source
	others   recent // readable requests of senders without a place
	pruned   int64  // second of the last search for senders to forget
	unlisted uint64
}

// Requester is a sender of requests, with their input and tenant.
type Requester struct {
	Tenant string
	Input  string // as the stages call it: remote_write or otlp
	Token  string // name of its token; empty if it has none
	sender.Sender
}

// String returns the requester as text for people, such as: web, 10.0.0.1 (Prometheus/3.5.0).
func (r Requester) String() string {
	if r.Token == "" {
		return r.Sender.String()
	}
	return r.Token + ", " + r.Sender.String()
}

// source is what is remembered of a sender.
type source struct {
	seen    int64  // Unix seconds
	newest  int64  // Unix milliseconds of the newest sample; 0 before the first
	recent  recent // readable requests
	samples history
	sent    history
	refused map[string]uint64 // by reason, of which the program has a fixed number; nil before the first
}

// Source is a sender of requests.
type Source struct {
	Requester
	Seen     int64             // Unix seconds of its last request, refused ones included
	Newest   int64             // Unix milliseconds of its newest sample; 0 if it sent none
	Requests float64           // readable requests a second, over the last minute
	Samples  float64           // samples a second, over the last minute
	History  []float64         // samples a second in each of the last HistorySteps steps, the oldest first
	Refused  map[string]uint64 // samples, and whole requests, by reason, since it was first heard
}

// RequesterRow is what one Requester sent in the last Span seconds.
type RequesterRow struct {
	Requester
	Amount
}

// NewSources returns Sources without senders.
func NewSources() *Sources { return &Sources{byKey: map[Requester]*source{}} }

// Sent notes a readable request. `newest` is the time of its newest sample in Unix milliseconds, if it has samples.
// It does not keep the memory of r.
func (s *Sources) Sent(second int64, r Requester, bytes, samples int, newest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, of := Amount{Count: 1, Bytes: uint64(bytes), Samples: uint64(samples)}, s.at(second, r)
	if of == nil {
		s.others.add(second, a)
		return
	}
	of.recent.add(second, a)
	of.sent.add(second, 1)
	of.samples.add(second, uint64(samples))
	if samples > 0 { // a sample from the future, which stores refuse, must not hide for good how late the others are
		of.newest = max(of.newest, min(newest, second*1000+999))
	}
}

// Refused notes that samples of a request, or the whole request, were refused.
func (s *Sources) Refused(second int64, r Requester, reason string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.at(second, r)
	if of == nil {
		return
	}
	if of.refused == nil {
		of.refused = map[string]uint64{}
	}
	of.refused[reason] += uint64(n)
}

// at returns what is remembered of a sender, or nil if there is no room.
func (s *Sources) at(second int64, r Requester) *source {
	of := s.byKey[r]
	if of == nil {
		if !s.room(second) {
			s.unlisted++
			return nil
		}
		r.Tenant, r.Sender = strings.Clone(r.Tenant), r.Sender.Clone()
		of = new(source)
		s.byKey[r] = of
	}
	of.seen = max(of.seen, second)
	return of
}

// room forgets senders if there are too many: those that are silent for longer than Span.
func (s *Sources) room(second int64) bool {
	if len(s.byKey) >= maxSources && s.pruned != second { // at most once a second, since the search takes time
		s.pruned = second
		maps.DeleteFunc(s.byKey, func(_ Requester, of *source) bool { return second-of.seen > Span })
	}
	return len(s.byKey) < maxSources
}

// Unlisted returns how many requests and refusals had a sender without a place.
func (s *Sources) Unlisted() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unlisted
}

// Of returns the senders of a tenant that were heard in the time of a history, those with the most samples first.
func (s *Sources) Of(tenant string, second int64) (all []Source) {
	s.mu.Lock()
	for r, of := range s.byKey {
		if r.Tenant == tenant && second-of.seen < HistoryStep*HistorySteps {
			all = append(all, of.source(second, r))
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Source) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(b.Seen, a.Seen), byRequester(a.Requester, b.Requester))
	})
	return all
}

// Busiest returns the senders with the most readable requests in the Span seconds before `second`, of all tenants, and
// the sum of the others.
func (s *Sources) Busiest(second int64, limit int) ([]RequesterRow, Rest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []RequesterRow
	for r, of := range s.byKey {
		if a := of.recent.sum(second-Span, second); a.Count > 0 {
			all = append(all, RequesterRow{r, a})
		}
	}
	kept, rest := busiest(all, limit, func(r RequesterRow) Amount { return r.Amount }, func(a, b RequesterRow) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), byRequester(a.Requester, b.Requester))
	})
	rest.add(s.others.sum(second-Span, second))
	return kept, rest
}

// byRequester sorts the requesters of a tenant.
func byRequester(a, b Requester) int {
	return cmp.Or(strings.Compare(a.Input, b.Input), strings.Compare(a.Token, b.Token), a.Addr.Compare(b.Addr),
		strings.Compare(a.Agent, b.Agent))
}

func (s *source) source(second int64, r Requester) Source {
	return Source{
		Requester: r, Seen: s.seen, Newest: s.newest, Requests: s.sent.rate(second), Samples: s.samples.rate(second),
		History: s.samples.rates(second), Refused: maps.Clone(s.refused),
	}
}

// history has the counts of the last steps, one more than is shown: the last step is not whole.
type history struct {
	last   int64 // the newest step with a count, in steps since the epoch
	counts [HistorySteps + 1]uint64
}

func (h *history) add(second int64, n uint64) {
	step := second / HistoryStep
	if step <= h.last-int64(len(h.counts)) {
		return // the clock was set back
	}
	for at := max(h.last+1, step-int64(len(h.counts))+1); at <= step; at++ {
		h.counts[at%int64(len(h.counts))] = 0
	}
	h.last = max(h.last, step)
	h.counts[step%int64(len(h.counts))] += n
}

// count returns the count of a step; 0 if the step is not kept.
func (h *history) count(step int64) uint64 {
	if step > h.last || step <= h.last-int64(len(h.counts)) {
		return 0
	}
	return h.counts[step%int64(len(h.counts))]
}

// rates returns the rate in each of the last whole steps.
func (h *history) rates(second int64) []float64 {
	now, all := second/HistoryStep, make([]float64, HistorySteps)
	for i := range all {
		all[i] = float64(h.count(now-HistorySteps+int64(i))) / HistoryStep
	}
	return all
}

// rate returns the rate over the last whole steps and the one that is not whole.
func (h *history) rate(second int64) float64 {
	now, sum := second/HistoryStep, uint64(0)
	for step := now - rateSteps; step <= now; step++ {
		sum += h.count(step)
	}
	return float64(sum) / float64(second-(now-rateSteps)*HistoryStep)
}
