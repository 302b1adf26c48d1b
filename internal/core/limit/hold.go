package limit

// unclaimed notes that a place lost its last holder. By now the place may have a holder again, or its
// series may have left.
type unclaimed struct {
	place Place
	at    uint32 // Unix seconds, see slot.freed
}

// Key returns the key of the series that has a place. It never changes. Any goroutine may read the
// key without a lock while the place has a holder. When the last holder leaves, other series get
// the memory. So while a window of a table is flushed, the table calls Leave only after the flusher
// has read the keys.
func (t *Tenant) Key(p Place) []byte { return t.places.key(p) }

// Leave gives up a table's hold on a series. A series leaves with its last holder, but an up/down
// counter keeps its place while its total is kept. `now` is in Unix nanoseconds.
func (t *Tenant) Leave(now int64, p Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.places.at(p)
	switch s.holders--; {
	case s.holders > 0:
	case s.is(upDown):
		t.wait(now, p)
	default:
		t.places.remove(p)
	}
}

// Release gives up a table's hold on a series that another table will claim. The series stays
// known until then, but not for longer than the claim time. A passer-by, a series that was in one
// window only, may have to leave earlier: see LeaveUnclaimed.
func (t *Tenant) Release(now int64, p Place, isPasserBy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.places.at(p)
	if s.holders--; s.holders == 0 {
		s.set(passerBy, isPasserBy && !s.is(upDown))
		t.wait(now, p)
	}
}

// Load makes known a series that was live before a restart, even if it is over a limit. The series has
// no holder: a table must claim it within the claim time. An up/down counter keeps its place until its
// total is forgotten, and that time begins at `seen`, the time of the last sample. Call Load in the
// order of `seen`. The series counts as a passer-by until it comes again, since nothing tells how often
// it came before the restart. Times are Unix nanoseconds.
func (t *Tenant) Load(now, seen int64, key []byte, source uint64) {
	if len(key) > maxKey { // Claim will refuse the series as too long
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	hash := t.places.hash(key, source)
	if t.places.find(hash, key, source) == 0 {
		p := t.places.insert(hash, key, source)
		if s := t.places.at(p); s.is(upDown) {
			now = min(now, seen)
		} else {
			s.set(passerBy, true)
		}
		t.wait(now, p)
	}
}

// wait starts the time for which a place may stay without a holder.
func (t *Tenant) wait(now int64, p Place) {
	s := t.places.at(p)
	s.freed = seconds(now)
	if !s.is(waiting) {
		s.set(waiting, true)
		q := &t.unclaimed[s.queue()]
		*q = append(*q, unclaimed{p, s.freed})
	}
}

// Queues of places without a holder, by how long the places are kept. Each queue is ordered by
// time.
const (
	ordinary = iota // the claim time
	total           // up/down counters: kept as long as their totals
	numQueues
)

func (s *slot) queue() int {
	if s.is(upDown) {
		return total
	}
	return ordinary
}

// seconds turns Unix nanoseconds into seconds. It rounds up, so that no series leaves before the
// claim time is over.
func seconds(now int64) uint32 { return uint32((now + 999_999_999) / 1e9) }

// expireAtOnce is how many unclaimed places one claim looks at. That takes about 30 µs if all of them
// leave. A claim that removed a million places would stop all sockets for half a second.
const expireAtOnce = 64

// expire removes some series that were not claimed in time, and reports whether more may be
// left.
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
		s := t.places.at(p)
		s.set(waiting, false)
		switch {
		case s.holders > 0 || s.metric == 0:
		case t.late(s.queue(), now, s.freed):
			t.places.remove(p)
		default: // the place was claimed and freed again, perhaps by another series
			t.wait(int64(s.freed)*1e9, p)
		}
	}
	return true
}

// expireAll removes all series that were not claimed in time. It releases the lock now and then.
func (t *Tenant) expireAll(now int64) {
	for t.expire(now) {
		t.mu.Unlock()
		t.mu.Lock()
	}
}

// late reports whether a place has been in the queue for too long. `since` is the time at which the
// place lost its holder, in Unix seconds.
func (t *Tenant) late(queue int, now int64, since uint32) bool {
	return now-int64(since)*1e9 > t.times[queue]
}

// leaveLook is how many places one call of LeaveUnclaimed looks at, at most. That takes 1 ms.
const leaveLook = 1 << 16

// LeaveUnclaimed removes passers-by that have no holder and whose places are wanted: see Crowded.
// `after` is in Unix nanoseconds. Tables call LeaveUnclaimed when a flood is over, while they let their
// own passers-by go. A restart may leave a million passers-by, so each call does a bounded part of
// the work. It starts after the place `behind`, which is 0 at first, and removes at most `most` series.
// It returns the place that it reached, or 0 at the end.
func (t *Tenant) LeaveUnclaimed(behind Place, after int64, most int) (last Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for looked := 0; looked < leaveLook && most > 0; looked++ {
		if behind++; uint32(behind) >= t.places.slots.next {
			return 0
		}
		if behind%expireAtOnce == 0 { // let other goroutines take the lock
			t.mu.Unlock()
			t.mu.Lock()
		}
		s := t.places.at(behind)
		if s.metric != 0 && s.holders == 0 && s.is(passerBy) && t.Crowded(behind, after) {
			t.places.remove(behind)
			most--
		}
	}
	return behind
}

// Crowded reports whether a new series exceeded a limit after `since`, in Unix nanoseconds. Only limits
// that apply to the series in place p count. Crowded takes no lock.
func (t *Tenant) Crowded(p Place, since int64) bool {
	return t.tenantOver.Load() > since || t.places.metrics.at(t.places.at(p).metric).over.Load() > since
}
