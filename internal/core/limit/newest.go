package limit

import (
	"bytes"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// maxNewest is how many of the newest series are remembered.
const maxNewest = 50

// Newcomer is a series that got a place.
type Newcomer struct {
	Key       []byte        // of series.AppendKey
	At        int64         // Unix nanoseconds
	Sender    sender.Sender // sender of the first sample; zero if unknown
	Container string        // container id in the sender's line
}

// newest is a ring of the series that got a place last. Its memory is reused.
type newest struct {
	ring [maxNewest]Newcomer
	next int
}

func (n *newest) add(now int64, c *Claim) {
	place := &n.ring[n.next%maxNewest]
	n.next++
	*place = Newcomer{
		Key: append(place.Key[:0], c.Key...), At: now, Sender: c.Sender, Container: keep(cut(c.Container), place.Container),
	}
}

// Newest returns the series that got a place last, newest first.
func (t *Tenant) Newest() []Newcomer {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &t.newest
	var all []Newcomer
	for i := n.next - 1; i >= 0 && i >= n.next-maxNewest; i-- {
		newcomer := n.ring[i%maxNewest]
		newcomer.Key = bytes.Clone(newcomer.Key)
		all = append(all, newcomer)
	}
	return all
}

// keysAtOnce is the number of keys that Keys copies before it releases the lock for others. Copying this
// many keys takes about 100 µs.
const keysAtOnce = 1024

// Keys returns copies of the keys of all series. A series that comes or goes meanwhile may be
// missing.
func (t *Tenant) Keys() [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := make([][]byte, 0, t.places.taken)
	for p := Place(1); uint32(p) < t.places.slots.next; p++ {
		if p%keysAtOnce == 0 {
			t.mu.Unlock()
			t.mu.Lock()
		}
		if t.places.at(p).metric != 0 {
			keys = append(keys, bytes.Clone(t.places.key(p)))
		}
	}
	return keys
}

// Series returns the number of series that have a place.
func (t *Tenant) Series() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.places.taken
}

// MetricSeries returns the number of series of a metric.
func (t *Tenant) MetricSeries(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.places.metric([]byte(name)); m != nil {
		return m.series
	}
	return 0
}
