package limit

// maxNewest is how many of the newest series are remembered.
const maxNewest = 50

// Newcomer is a series that got a place.
type Newcomer struct {
	Key    []byte // see (*Series).Key
	At     int64  // Unix nanoseconds
	Sender Sender // of its first sample; zero if nobody knew
}

// newest is the series that got a place last, in a ring.
type newest struct {
	ring [maxNewest]Newcomer
	next int
}

func (n *newest) add(now int64, s *Series, c *Claim) {
	place := &n.ring[n.next%maxNewest]
	n.next++
	*place = Newcomer{Key: s.key, At: now, Sender: c.Sender}
	if len(c.Container) > 0 {
		place.Sender.Container = string(cut(c.Container))
	}
}

// Newest returns the series that got a place last, the newest first.
func (t *Tenant) Newest() []Newcomer {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &t.newest
	var all []Newcomer
	for i := n.next - 1; i >= 0 && i >= n.next-maxNewest; i-- {
		all = append(all, n.ring[i%maxNewest])
	}
	return all
}

// keysAtOnce is how many keys are copied before those who want a place get their
// turn: some 50 µs.
const keysAtOnce = 1024

// Keys returns the keys of all series, for who does not mind that one which comes
// or goes meanwhile may be missing.
func (t *Tenant) Keys() [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := make([][]byte, 0, t.held)
	for _, s := range t.series {
		for ; s != nil; s = s.next {
			keys = append(keys, s.key)
		}
		if len(keys)%keysAtOnce == 0 {
			t.mu.Unlock()
			t.mu.Lock() // a map may change between two steps of a walk
		}
	}
	return keys
}

// MetricSeries is the number of series of a metric.
func (t *Tenant) MetricSeries(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.metrics[name]; m != nil {
		return m.series
	}
	return 0
}
