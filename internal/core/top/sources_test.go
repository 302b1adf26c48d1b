package top

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/sender"
)

func requester(tenant, remote, agent string) Requester {
	return Requester{Tenant: tenant, Input: "remote_write", Sender: sender.Of(remote, agent)}
}

// A sender has a rate, a history, the time of its newest sample, and what of it was refused.
func TestSources(t *testing.T) {
	s := NewSources()
	const start = 1_000_005 // a multiple of HistoryStep
	prometheus := requester("a", "10.0.0.1:9", "Prometheus/3")
	for second := int64(start); second < start+600; second += 15 {
		s.Sent(second, prometheus, 1, 1500, second*1000-500)
		s.Sent(second, requester("b", "10.0.0.1:9", "Prometheus/3"), 1, 1, 1)
	}
	s.Sent(start+599, prometheus, 1, 0, 0)
	s.Refused(start+599, prometheus, "too_old", 3)
	s.Refused(start+599, prometheus, "too_old", 4)
	s.Refused(start+599, requester("a", "10.0.0.2:9", "bad/1"), "malformed", 1)

	all := s.Of("a", start+600)
	if len(all) != 2 || all[0].Requester != requester("a", "10.0.0.1:0", "Prometheus/3") {
		t.Fatalf("the senders are %+v, want Prometheus and the bad one", all)
	}
	p := all[0]
	if p.Samples != 100 || p.Seen != start+599 || p.Newest != (start+585)*1000-500 || p.Refused["too_old"] != 7 {
		t.Errorf("Prometheus is %+v, want 100 samples/s, 7 refused", p)
	}
	if len(p.History) != HistorySteps || p.History[19] != 0 || p.History[20] != 100 || p.History[59] != 100 {
		t.Errorf("the history is %v, want 20 steps of 0 and 40 of 100", p.History)
	}
	if bad := all[1]; bad.Newest != 0 || bad.Requests != 0 || !maps.Equal(bad.Refused, map[string]uint64{"malformed": 1}) {
		t.Errorf("the bad sender is %+v, want a malformed request alone", bad)
	}
	if later := s.Of("a", start+600+HistoryStep*HistorySteps); len(later) != 0 {
		t.Errorf("a quarter of an hour later the senders are %+v, want none", later)
	}
}

// A single sample from the future does not hide that all others are late.
func TestASampleFromTheFuture(t *testing.T) {
	s := NewSources()
	r := requester("a", "10.0.0.1:9", "Prometheus/3")
	s.Sent(1000, r, 1, 1, 4_000_000_000_000)
	s.Sent(5000, r, 1, 1, 100_000)
	if got := s.Of("a", 5000)[0].Newest; got != 1_000_999 {
		t.Errorf("the newest sample has the time %d, want that of the request which brought it", got)
	}
}

// After a pause the history has zeros. A clock that is set back changes nothing that is older than the history.
func TestHistoryAfterAPause(t *testing.T) {
	var h history
	h.add(15*1000, 30)
	h.add(15*1003, 30)
	h.add(15*900, 7)
	if got := h.rates(15 * 1004)[HistorySteps-5:]; fmt.Sprint(got) != "[0 2 0 0 2]" {
		t.Errorf("the last steps are %v", got)
	}
	if h.add(15*5000, 15); h.count(1003) != 0 || h.count(5000) != 15 || h.count(4990) != 0 {
		t.Errorf("after a long pause the history is %v", h)
	}
}

// A program has one row, however many connections it has. Programs, tenants and inputs have rows of
// their own.
func TestBusiestSources(t *testing.T) {
	s := NewSources()
	for second := int64(100); second < 120; second++ {
		for port := range 100 {
			s.Sent(second, requester("a", fmt.Sprint("10.0.0.1:", 1000+port), "small/1"), 300, 10, 0)
		}
		s.Sent(second, requester("a", "10.0.0.1:9", "Prometheus/3"), 50_000, 2000, 0)
		s.Sent(second, requester("b", "10.0.0.1:9", "Prometheus/3"), 25_000, 1000, 0)
		s.Refused(second, requester("b", "10.0.0.1:9", "bad/1"), "malformed", 1)
	}
	got, rest := s.Busiest(120, 2)
	want := []RequesterRow{
		{requester("a", "10.0.0.1:0", "small/1"), Amount{Count: 1000, Bytes: 300_000, Samples: 10_000}},
		{requester("a", "10.0.0.1:0", "Prometheus/3"), Amount{Count: 10, Bytes: 500_000, Samples: 20_000}},
	}
	if !slices.Equal(got, want) || rest != (Rest{1, Amount{Count: 10, Bytes: 250_000, Samples: 10_000}}) {
		t.Errorf("got %v and %v", got, rest)
	}
	if got, rest := s.Busiest(140, 2); len(got) != 0 || rest != (Rest{}) {
		t.Errorf("after 10 s without requests: %v and %v, want nothing", got, rest)
	}
}

// Programs of one address have rows of their own if their tokens have names, which stand before the address.
func TestSourcesByToken(t *testing.T) {
	s := NewSources()
	for i, token := range []string{"web", "shop", ""} {
		r := requester("a", "10.0.0.1:9", "otel/1")
		r.Token = token
		s.Sent(10_000, r, 1, 10-i, 0)
	}
	const want = "10.0.0.1 (otel/1); shop, 10.0.0.1 (otel/1); web, 10.0.0.1 (otel/1); "
	busiest, listed := "", []string{}
	rows, _ := s.Busiest(10_001, 10)
	for _, r := range rows {
		busiest += r.Requester.String() + "; "
	}
	for _, from := range s.Of("a", 10_001) {
		listed = append(listed, from.Token)
	}
	if busiest != want || !slices.Equal(listed, []string{"web", "shop", ""}) {
		t.Errorf("the busiest are %s and the list has %q", busiest, listed)
	}
}

// Memory is bounded, whatever user agents the requests name, and what finds no place is counted. Silent senders make
// room.
func TestSourcesAreBounded(t *testing.T) {
	s := NewSources()
	for i := range maxSources + 100 {
		s.Sent(1000, requester("a", "10.0.0.1:1", fmt.Sprint(i, strings.Repeat("x", 1000))), 1, 1, 1)
	}
	if len(s.byKey) != maxSources || s.Unlisted() != 100 {
		t.Errorf("%d senders and %d unlisted, want %d and 100", len(s.byKey), s.Unlisted(), maxSources)
	}
	if got, rest := s.Busiest(1001, 10); len(got[0].Agent) > 100 || rest.Count != maxSources+90 {
		t.Errorf("an agent has %d bytes, want at most 100; %d other requests, want %d",
			len(got[0].Agent), rest.Count, maxSources+90)
	}
	s.Sent(1000+Span+1, requester("b", "10.0.0.2:1", "new"), 1, 1, 1)
	if got := s.Of("b", 1000+Span+1); len(got) != 1 || len(s.byKey) != 1 {
		t.Errorf("after a new sender there are %d, want its own alone", len(s.byKey))
	}
}

func TestSourcesAllocateNothing(t *testing.T) {
	s, r := NewSources(), requester("a", "10.0.0.1:1", "Prometheus/3")
	s.Sent(1000, r, 1, 1, 1)
	if n := testing.AllocsPerRun(100, func() { s.Sent(1000, r, 1, 1, 1) }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

// Bound: 0 allocs/op and 300 ns a request, so that 20,000 small requests a second cost 6 ms.
func BenchmarkSources(b *testing.B) {
	s, all := NewSources(), [64]Requester{}
	for i := range all {
		all[i] = requester("a", fmt.Sprintf("10.0.0.%d:1", i), "Prometheus/3")
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.Sent(1000+int64(i>>20), all[i%len(all)], 300, 10, 1)
		i++
	}
}
