package limit

// unclaimed is a place that had no holder at a time. It may have one again, or its
// series may have left.
type unclaimed struct {
	place Place
	at    uint32 // Unix seconds, see record.freed
}

// Key is the key of the series in a place. It never changes, and nobody changes it.
// Any goroutine may read it, without waiting for others, as long as somebody holds
// the place who knows of it: memory of a key whose last holder left is given to other
// series. Who hands keys on, as a table does with a window that is flushed elsewhere,
// leaves when they were read.
func (t *Tenant) Key(p Place) []byte { return t.places.key(p) }

// Leave gives up a table's hold on a series, which leaves with its last. The place of an
// up/down counter stays taken for as long as its total is kept. now is Unix nanoseconds.
func (t *Tenant) Leave(now int64, p Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.places.at(p)
	switch r.holders--; {
	case r.holders > 0:
	case r.is(upDown):
		t.wait(now, p)
	default:
		t.places.remove(p)
	}
}

// Release gives up a table's hold on a series whose samples go on: another table
// will claim it. Until then it stays known for the claim time. A passer-by, which
// was in one window only, may have to leave before: see LeaveUnclaimed.
func (t *Tenant) Release(now int64, p Place, isPasserBy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.places.at(p)
	if r.holders--; r.holders == 0 {
		r.set(passerBy, isPasserBy && !r.is(upDown))
		t.wait(now, p)
	}
}

// Load makes a series known that was live before a restart, over limits or not.
// It has no holder, and the claim time to find one; an up/down counter the rest of the time
// for which its total is kept after seen, its last sample. So these come in the order of
// seen. How often a series came is not known, so that it counts as a passer-by until it
// comes again. Times are Unix nanoseconds.
func (t *Tenant) Load(now, seen int64, key []byte, source uint64) {
	if len(key) > maxKey { // it comes again as one that is too long
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	hash := t.places.hash(key, source)
	if t.places.find(hash, key, source) == 0 {
		p := t.places.insert(hash, key, source)
		if r := t.places.at(p); r.is(upDown) {
			now = min(now, seen)
		} else {
			r.set(passerBy, true)
		}
		t.wait(now, p)
	}
}

// wait gives a place without a holder the time that it may stay without, from now on.
func (t *Tenant) wait(now int64, p Place) {
	r := t.places.at(p)
	r.freed = seconds(now)
	if !r.is(waiting) {
		r.set(waiting, true)
		q := &t.unclaimed[r.queue()]
		*q = append(*q, unclaimed{p, r.freed})
	}
}

// Places without a holder, by how long they may stay so. Each queue is in the order of time.
const (
	ordinary = iota // the claim time
	total           // of up/down counters: as long as their totals are kept
	numQueues
)

func (r *record) queue() int {
	if r.is(upDown) {
		return total
	}
	return ordinary
}

// seconds rounds Unix nanoseconds up: nobody leaves before the claim time is over.
func seconds(now int64) uint32 { return uint32((now + 999_999_999) / 1e9) }

// expireAtOnce is how many of the unclaimed a claim looks at: some 30 µs if all of them
// leave. A claim that found a million of them late would keep the readers of all
// sockets waiting for half a second.
const expireAtOnce = 64

// expire removes series that nobody claimed in time, and reports whether there may be
// more of them.
func (t *Tenant) expire(now int64) (more bool) {
	for queue := range t.unclaimed {
		more = t.expireOf(queue, now) || more
	}
	return more
}

func (t *Tenant) expireOf(queue int, now int64) (more bool) {
	q := &t.unclaimed[queue]
	for range expireAtOnce {
		if len(*q) == 0 || !t.late(queue, now, (*q)[0].at) {
			return false
		}
		p := (*q)[0].place
		*q = (*q)[1:]
		if len(*q) == 0 {
			*q = nil
		}
		r := t.places.at(p)
		r.set(waiting, false)
		switch {
		case r.holders > 0 || r.metric == 0:
		case t.late(r.queue(), now, r.freed):
			t.places.remove(p)
		default: // claimed and freed again meanwhile, perhaps by another series
			t.wait(int64(r.freed)*1e9, p)
		}
	}
	return true
}

// expireAll is expire, in which others get their turn.
func (t *Tenant) expireAll(now int64) {
	for t.expire(now) {
		t.mu.Unlock()
		t.mu.Lock()
	}
}

// late reports whether the time of a queue is over for a place that is without a holder
// since a Unix second.
func (t *Tenant) late(queue int, now int64, since uint32) bool {
	return now-int64(since)*1e9 > t.times[queue]
}

// leaveLook is how many places are looked at, at most, for passers-by: 1 ms.
const leaveLook = 1 << 16

// LeaveUnclaimed removes passers-by that nobody holds, where places were wanted since
// after, Unix nanoseconds. Tables call it when a flood is over, as they let their own
// go, and as these a bounded number at once: it begins behind a place, the first time
// 0, removes most of them at most, and returns the place that it came to, 0 if it was
// the last. A restart leaves a million of them.
func (t *Tenant) LeaveUnclaimed(behind Place, after int64, most int) (last Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for looked := 0; looked < leaveLook && most > 0; looked++ {
		if behind++; uint32(behind) >= t.places.records.next {
			return 0
		}
		if behind%expireAtOnce == 0 { // others get their turn
			t.mu.Unlock()
			t.mu.Lock()
		}
		r := t.places.at(behind)
		if r.metric != 0 && r.holders == 0 && r.is(passerBy) && t.Crowded(behind, after) {
			t.places.remove(behind)
			most--
		}
	}
	return behind
}

// Crowded reports whether a place that somebody holds would serve those who were over
// a limit since a time, in Unix nanoseconds. It waits for nobody.
func (t *Tenant) Crowded(p Place, since int64) bool {
	return t.tenantOver.Load() > since || t.places.metrics.at(t.places.at(p).metric).over.Load() > since
}
