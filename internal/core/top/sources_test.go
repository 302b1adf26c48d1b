package top

import (
	"fmt"
	"maps"
	"testing"
)

// A sender has a rate, a history, the time of its newest sample, and what of it was refused.
func TestSources(t *testing.T) {
	s := NewSources()
	const start = 1_000_005 // a multiple of HistoryStep
	prometheus := requester("a", "10.0.0.1:9", "Prometheus/3")
	for second := int64(start); second < start+600; second += 15 {
		s.Sent(second, prometheus, 1500, second*1000-500)
		s.Sent(second, requester("b", "10.0.0.1:9", "Prometheus/3"), 1, 1)
	}
	s.Sent(start+599, prometheus, 0, 0)
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
	s.Sent(1000, r, 1, 4_000_000_000_000)
	s.Sent(5000, r, 1, 100_000)
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

// Memory is bounded, and what finds no place is counted. Silent senders make room.
func TestSourcesAreBounded(t *testing.T) {
	s := NewSources()
	for i := range maxSources + 100 {
		s.Sent(1000, requester("a", "10.0.0.1:1", fmt.Sprint(i)), 1, 1)
	}
	if len(s.byKey) != maxSources || s.Unlisted() != 100 {
		t.Errorf("%d senders and %d unlisted, want %d and 100", len(s.byKey), s.Unlisted(), maxSources)
	}
	s.Sent(1000+Span+1, requester("b", "10.0.0.2:1", "new"), 1, 1)
	if got := s.Of("b", 1000+Span+1); len(got) != 1 || len(s.byKey) != 1 {
		t.Errorf("after a new sender there are %d, want its own alone", len(s.byKey))
	}
}

func TestSourcesAllocateNothing(t *testing.T) {
	s, r := NewSources(), requester("a", "10.0.0.1:1", "Prometheus/3")
	s.Sent(1000, r, 1, 1)
	if n := testing.AllocsPerRun(100, func() { s.Sent(1000, r, 1, 1) }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
