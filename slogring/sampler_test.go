package slogring

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
)

// The counts are exact even while periods end, messages are forgotten and come again, and the last period
// ends during logging. Only records that are not counted pass in this test: records without a slot, and
// records after the end.
func TestSamplerTogether(t *testing.T) {
	const goroutines, each, rounds = 4, 4000, 60
	names := make([]string, 2*messages)
	for i := range names {
		names[i] = fmt.Sprint("message ", i)
	}
	for round := range rounds {
		known := []int{1, 3, len(names)}[round%3]
		s := &sampler{}
		var mu sync.Mutex // the lock of the writer
		var passed [goroutines]uint64
		var calling sync.WaitGroup
		var over atomic.Bool
		for g := range goroutines {
			calling.Go(func() {
				defer over.Store(true)
				for i := range each {
					if s.pass(slog.LevelInfo, names[(i*(g+1))%known]) {
						passed[g]++
					}
				}
			})
		}
		said := uint64(0)
		settle := func(last bool) {
			mu.Lock()
			defer mu.Unlock()
			due, _ := s.settle(last, nil)
			for _, d := range due {
				said += d.unsaid
				d.unsaid = 0
			}
		}
		for n := 0; n < 10*round || !over.Load() && round%2 == 0; n++ {
			settle(false)
		}
		settle(true)
		calling.Wait()
		sum := said
		for _, n := range passed {
			sum += n
		}
		if sum != goroutines*each || s.suppressed() != said {
			t.Errorf("with %d messages: counted %d records, want %d; the summaries report %d, want all %d that were "+
				"suppressed; passed: %v",
				known, sum, goroutines*each, said, s.suppressed(), passed)
		}
	}
}

// A tally that is sealed but not yet removed delays no caller.
func TestSealedTally(t *testing.T) {
	s := &sampler{first: 1}
	level, message := slog.LevelInfo, "message"
	s.pass(level, message)
	for i := range s.places {
		if t := s.places[i].Load(); t != nil {
			t.n.Store(sealed)
		}
	}
	if !s.pass(level, message) || s.pass(level, message) {
		t.Error("the message does not have a new tally")
	}
}
