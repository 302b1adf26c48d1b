package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/record"
)

// Small requests: a request costs about 100 us plus the cost of its samples. So senders that put
// ten samples into each request waste the processors.
const (
	// fewSamples is the average number of samples in a request below which requests are small.
	// Prometheus sends up to 2,000.
	fewSamples = 100

	// fewRequests is a rate that costs next to nothing, in requests a second of all senders with the
	// same tenant, input and user agent.
	fewRequests = 20

	// The part of all processors that larger requests would save.
	savedUsual = 0.10
	savedBad   = 0.30

	// The same saving as a part of the processors that the process gets. This part counts if goroutines
	// wait for a processor.
	savedOfOwn    = 0.20
	savedOfOwnBad = 0.40

	// Defaults of senders: Prometheus' max_samples_per_send, and send_batch_size of
	// OpenTelemetry's batch processor.
	prometheusBatch = 2000
	otelBatch       = 8192
)

// smallSenders are the senders of small requests with the same tenant, input and user agent. Their
// requests are summed, since in a large fleet each sender may send few requests.
type smallSenders struct {
	record.Sent     // sums of all senders; From is the sender with the most requests
	number      int // number of senders
	most        float64
	larger      float64 // requests a second that suffice if they are large
}

// batch returns how many samples a request may have, and the setting for it.
func (s *smallSenders) batch() (samples float64, setting string) {
	if s.Input == "otlp" {
		return otelBatch, fmt.Sprintf("the collector's batch processor (send_batch_size: %d)", otelBatch)
	}
	return prometheusBatch, fmt.Sprintf("remote_write.queue_config.max_samples_per_send: %d", prometheusBatch)
}

func smallRequests(m *moment) finding {
	small, all := m.smallSenders()
	requests := 0.0 // requests a second that would be saved
	for i := range small {
		requests += small[i].saved()
	}
	cost := m.requestCost() / math.Max(1, all) // core seconds per request
	saved := cost * requests

	f := finding{fine: fmt.Sprintf("requests of remote write and OTLP: %s a second", count(all))}
	if cost > 0 {
		f.fine += fmt.Sprintf("; each costs about %s plus its samples; larger ones would save %s of %d processors",
			seconds(cost), average(saved), m.GOMAXPROCS)
	}
	f.Name, f.Title = SmallRequests, "No sender sends many small requests"
	own := saved / max(m.cores(), 1e-9)
	f.Score = max(ramp(saved/float64(max(1, m.GOMAXPROCS)), savedUsual, savedBad),
		ramp(own, savedOfOwn, savedOfOwnBad)*m.active()*starvation(m).Score)
	f.Because = fmt.Sprintf("requests of less than %d samples cost about %s of %d processors more than large ones "+
		"would (score 0 up to %s of them, 1 from %s), or, if goroutines wait for a processor, "+
		"%s of those that the process gets (%s to %s)",
		fewSamples, average(saved), m.GOMAXPROCS, percent(savedUsual), percent(savedBad), percent(min(1, own)),
		percent(savedOfOwn), percent(savedOfOwnBad))
	if len(small) > 0 {
		first := &small[0]
		_, setting := first.batch()
		f.Title = fmt.Sprintf("Requests are tiny: %s a second of %s samples each, of tenant %s, from %s; "+
			"%s would make them %s a second and save about %s of a core",
			count(first.Requests), count(first.Samples/first.Requests), clip(first.Tenant), first.from(), setting,
			count(first.larger), average(cost*first.saved()))
	}
	for i := range small[:min(4, len(small))] {
		s := &small[i]
		_, setting := s.batch()
		f.Evidence = append(f.Evidence, Evidence{
			What: fmt.Sprintf("tenant %s, %s, from %s: %s requests a second of %s samples",
				clip(s.Tenant), clip(s.Input), s.from(), count(s.Requests), count(s.Samples/s.Requests)),
			Figures: []string{
				fmt.Sprintf("the requests cost about %s of a core plus their samples, %s each, by cpu.pprof",
					average(cost*s.Requests), seconds(cost)),
				fmt.Sprintf("%s would make them %s a second and save about %s of a core",
					setting, count(s.larger), average(cost*s.saved())),
			},
		})
	}
	f.Next = "Put more samples into a request at the sender: in Prometheus raise " +
		"remote_write.queue_config.max_samples_per_send, and lower max_shards if there are many shards with little to " +
		"send, since each sends what it has after batch_send_deadline. In an OpenTelemetry collector, " +
		"add the batch processor. In your own program, collect samples for a second."
	return f
}

// smallSenders returns the senders of small requests, with the largest possible saving first. It
// also returns how many requests a second all senders send.
func (m *moment) smallSenders() (small []smallSenders, all float64) {
	type fleet struct{ tenant, input, agent string }
	at := map[fleet]int{} // in small
	for i := range m.sent {
		s := &m.sent[i]
		if !(s.Requests > 0) || !(s.Samples >= 0) || math.IsInf(s.Requests+s.Samples, 0) {
			continue
		}
		all += s.Requests
		if s.Input == "" || s.Samples >= fewSamples*s.Requests {
			continue // the row of all other senders, or a sender of large requests
		}
		of := fleet{s.Tenant, s.Input, s.Agent}
		if _, ok := at[of]; !ok {
			at[of] = len(small)
			small = append(small, smallSenders{Sent: record.Sent{Tenant: s.Tenant, Input: s.Input, Agent: s.Agent}})
		}
		small[at[of]].add(s)
	}
	small = slices.DeleteFunc(small, func(s smallSenders) bool { return s.Requests <= fewRequests })
	slices.SortStableFunc(small, func(a, b smallSenders) int { return cmp.Compare(b.saved(), a.saved()) })
	return small, all
}

// add adds a sender. Each sender needs at least one request a second, since fewer would make
// samples late.
func (s *smallSenders) add(one *record.Sent) {
	s.number++
	s.Requests += one.Requests
	s.Samples += one.Samples
	batch, _ := s.batch()
	s.larger += max(one.Samples/batch, min(1, one.Requests))
	if one.Requests > s.most {
		s.From, s.most = one.From, one.Requests
	}
}

// saved returns the number of requests a second that larger requests would save.
func (s *smallSenders) saved() float64 { return s.Requests - s.larger }

// from returns a text that names the senders, for example "150 senders such as 10.0.0.1 (shop/1)".
func (s *smallSenders) from() string {
	if s.number == 1 {
		return clip(s.From)
	}
	return fmt.Sprintf("%d senders such as %s", s.number, clip(s.From))
}

// requestCost returns how many processors the requests of remote write and OTLP keep busy with
// HTTP, commits and handovers. The work for their samples does not count.
func (m *moment) requestCost() (cores float64) {
	for _, s := range m.cpu {
		if s.query == "" && s.stack.ofRequest() {
			cores += s.value / 1e9 / m.seconds
		}
	}
	return cores
}

// ofRequest reports whether the stack works for a request, but not on the request's samples.
func (s stack) ofRequest() bool {
	if s.in(ourModule+"internal/core/remotewrite.", ourModule+"internal/core/otlp.", ourModule+"internal/core/labelrules.",
		ourModule+"internal/adapter/tsdb.(*rawWrite).") {
		return false // work for samples
	}
	switch {
	case s.in(ourModule+"internal/adapter/receive.", ourModule+"internal/role/ingester."):
		return true
	case s.has("net/http.serverHandler.ServeHTTP"): // a request to another handler
		return false
	}
	return s.in("net/http.(*conn).", "net/http.(*http2serverConn).") // reading requests and answering
}
