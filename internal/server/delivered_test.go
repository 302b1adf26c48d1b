package server

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
)

// Rules wait for windows of a collector that is late. One that ends in order, or is gone, does not hold them up.
func TestWindowsOfAllCollectorsCount(t *testing.T) {
	var d deliveries
	now := time.UnixMilli(1_700_000_000_000)
	tell := func(term, producer uint64, age time.Duration, final bool) {
		d.note(term, now, &peer.Delivered{Producer: producer, Through: now.Add(-age).UnixMilli(), Final: final})
	}
	expect := func(when string, term uint64, age time.Duration) {
		t.Helper()
		if got := now.Sub(time.UnixMilli(d.through(term, now, time.Minute))); got != age {
			t.Errorf("%s: delivered up to %v ago, want %v", when, got, age)
		}
	}
	expect("the term begins", 1, 0)
	now = now.Add(2 * time.Second)
	tell(1, 7, time.Second, false)
	expect("not all collectors may have told yet", 1, 2*time.Second)
	now = now.Add(2 * time.Second)
	expect("one has told", 1, 3*time.Second)
	tell(1, 8, 20*time.Second, false)
	tell(1, 7, 0, false)
	expect("the other one waits", 1, 20*time.Second)
	tell(1, 8, 0, true)
	expect("it has ended", 1, 0)
	now = now.Add(59 * time.Second)
	expect("a silent one", 1, 59*time.Second)
	now = now.Add(time.Second)
	expect("it is gone", 1, 0)
	tell(2, 7, 5*time.Second, false)
	now = now.Add(time.Second)
	expect("another term begins", 2, 6*time.Second)
}

// A collector that dies together with the leader never tells the next leader anything. That one waits nevertheless,
// until the collector was silent for the timeout, over all terms.
func TestTheNextLeaderWaitsForACollectorThatDied(t *testing.T) {
	const timeout = time.Minute
	var first, second, third deliveries
	now := time.UnixMilli(1_700_000_000_000)
	died := now
	first.note(1, now, &peer.Delivered{Producer: 7, Through: now.UnixMilli()})
	first.note(1, now, &peer.Delivered{Producer: 8, Through: now.UnixMilli()})
	now = now.Add(time.Second)
	second.learn(now, first.heard(now, timeout))
	expect := func(when string, term uint64, d *deliveries, want time.Time) {
		t.Helper()
		d.note(term, now, &peer.Delivered{Producer: 8, Through: now.UnixMilli()})
		if got := time.UnixMilli(d.through(term, now, timeout)); !got.Equal(want) {
			t.Errorf("%s: delivered up to %v, want %v", when, got, want)
		}
	}
	now = now.Add(10 * time.Second)
	expect("the next leader has not heard it", 2, &second, died)
	third.learn(now, second.heard(now, timeout))
	expect("the leader after it neither", 3, &third, died)
	now = now.Add(48 * time.Second)
	expect("it is silent for 59 s", 3, &third, died)
	now = now.Add(time.Second)
	expect("it is gone", 3, &third, now)
	if all := second.heard(now, timeout); len(all) != 1 {
		t.Errorf("the nodes are told of %v, want the collector that lives alone", all)
	}
}
