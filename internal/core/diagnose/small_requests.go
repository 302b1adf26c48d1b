package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/record"
)

// Small requests: a request costs some 100 us whatever is in it, so that senders who put ten
// samples into each take the processors for nothing.
const (
	// fewSamples is below how many samples in a request, on average, there are too few.
	// Prometheus sends up to 2,000.
	fewSamples = 100

	// fewRequests is up to how many a second one sender costs nothing to speak of.
	fewRequests = 20

	// What would be saved, as a part of all processors.
	savedUsual = 0.10
	savedBad   = 0.30

	// The same of the processors that the process gets, if goroutines wait for one.
	savedOfOwn    = 0.20
	savedOfOwnBad = 0.40

	// What senders do by themselves unless they are told otherwise: Prometheus'
	// max_samples_per_send, and send_batch_size of OpenTelemetry's batch processor.
	prometheusBatch = 2000
	otelBatch       = 8192
)

// smallSender is who sends small requests, and what larger ones would save.
type smallSender struct {
	*record.Sent
	saved float64 // requests a second
}

// batch is how many samples a request may have, and the setting that says so.
func (s *smallSender) batch() (samples float64, setting string) {
	if s.Input == "otlp" {
		return otelBatch, fmt.Sprintf("the collector's batch processor (send_batch_size: %d)", otelBatch)
	}
	return prometheusBatch, fmt.Sprintf("remote_write.queue_config.max_samples_per_send: %d", prometheusBatch)
}

func smallRequests(m *moment) finding {
	all, requests := 0.0, 0.0
	var small []smallSender
	for i := range m.sent {
		s := smallSender{Sent: &m.sent[i]}
		if !(s.Requests > 0) || !(s.Samples >= 0) || math.IsInf(s.Requests+s.Samples, 0) {
			continue
		}
		all += s.Requests
		if s.Requests > fewRequests && s.Samples < fewSamples*s.Requests {
			batch, _ := s.batch()
			s.saved = s.Requests - s.Samples/batch
			small, requests = append(small, s), requests+s.saved
		}
	}
	slices.SortStableFunc(small, func(a, b smallSender) int { return cmp.Compare(b.saved, a.saved) })
	cost := m.requestCost() / math.Max(1, all) // core seconds of one
	saved := cost * requests

	f := finding{fine: fmt.Sprintf("requests: %s a second of remote write and OTLP, each of which costs about %s beside its samples; larger ones would save %.2g of %d processors", count(all), seconds(cost), saved, m.GOMAXPROCS)}
	f.Name, f.Title = SmallRequests, "No sender sends many small requests"
	own := saved / max(m.cores(), 1e-9)
	f.Score = max(ramp(saved/float64(max(1, m.GOMAXPROCS)), savedUsual, savedBad), ramp(own, savedOfOwn, savedOfOwnBad)*m.active()*starvation(m).Score)
	f.Because = fmt.Sprintf("requests of less than %d samples cost about %.2g of %d processors more than large ones would (nothing below %s of them, all from %s on), or if goroutines wait for a processor %s of those that the process gets (%s to %s)",
		fewSamples, saved, m.GOMAXPROCS, percent(savedUsual), percent(savedBad), percent(min(1, own)), percent(savedOfOwn), percent(savedOfOwnBad))
	if len(small) > 0 {
		first := &small[0]
		batch, setting := first.batch()
		f.Title = fmt.Sprintf("Requests are tiny: %s a second of %s samples each, of tenant %s, from %s; %s would make them %s a second and save about %.2g of a core",
			count(first.Requests), count(first.Samples/first.Requests), clip(first.Tenant), clip(first.From), setting, count(first.Samples/batch), cost*first.saved)
	}
	for i := range small[:min(4, len(small))] {
		s := &small[i]
		batch, setting := s.batch()
		f.Evidence = append(f.Evidence, Evidence{
			What: fmt.Sprintf("tenant %s, %s, from %s: %s requests a second of %s samples", clip(s.Tenant), clip(s.Input), clip(s.From), count(s.Requests), count(s.Samples/s.Requests)),
			Figures: []string{
				fmt.Sprintf("they cost about %.2g of a core beside their samples, %s each, by cpu.pprof", cost*s.Requests, seconds(cost)),
				fmt.Sprintf("%s would make them %s a second and save about %.2g of a core", setting, count(s.Samples/batch), cost*s.saved),
			},
		})
	}
	f.Next = "Have the sender put more samples into a request: in Prometheus raise remote_write.queue_config.max_samples_per_send, and lower max_shards if each of many shards has little to send; a shard sends what it has after batch_send_deadline. In an OpenTelemetry collector add the batch processor. In a program of your own, collect samples for a second."
	return f
}

// requestCost is how many processors the requests of remote write and OTLP keep busy beside
// their samples: HTTP, commits, and handing over.
func (m *moment) requestCost() (cores float64) {
	for _, s := range m.cpu {
		if s.query == "" && s.stack.ofRequest() {
			cores += s.value / 1e9 / m.seconds
		}
	}
	return cores
}

// ofRequest reports whether the stack is work for a request, whatever is in it.
func (s stack) ofRequest() bool {
	if s.in(ourModule+"internal/core/remotewrite.", ourModule+"internal/core/otlp.", ourModule+"internal/core/labelrules.", ourModule+"internal/adapter/tsdb.(*rawWrite).") {
		return false // it is for samples
	}
	switch {
	case s.in(ourModule+"internal/adapter/receive.", ourModule+"internal/role/ingester."):
		return true
	case s.has("net/http.serverHandler.ServeHTTP"): // of another handler
		return false
	}
	return s.in("net/http.(*conn).", "net/http.(*http2serverConn).") // that reads and answers
}
