package peer

import (
	"context"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
)

const (
	maxBatch    = 1 << 20  // bytes of messages in a batch, unless a single message is longer
	entriesRoom = 64 << 20 // bytes of messages with entries that wait for one node
	urgentRoom  = 4 << 20  // bytes of urgent messages that wait for one node

	// overhead is roughly the memory that a waiting message takes in addition to its bytes.
	overhead = 128

	// tooLate is the longest time that a message waits for a connection. Raft makes progress with later
	// messages, and an old message would only delay them.
	tooLate = 5 * time.Second
)

// ends are the members at both ends of a stream.
type ends struct{ from, to uint64 }

// waiting is a message that is not sent yet.
type waiting struct {
	ends
	message wire.Part
	since   time.Time
}

func (w *waiting) size() int { return w.message.Bytes + overhead }

// queue has the messages that wait for one connection. It is safe for concurrent use.
type queue struct {
	room int // bytes

	mu    sync.Mutex
	all   []waiting
	bytes int
	more  chan struct{} // has an element after messages were added
}

func newQueue(room int) *queue { return &queue{room: room, more: make(chan struct{}, 1)} }

// put adds a message, and reports whether there was room.
func (q *queue) put(w waiting) bool {
	q.mu.Lock()
	full := q.bytes+w.size() > q.room
	if !full {
		q.all = append(q.all, w)
		q.bytes += w.size()
	}
	q.mu.Unlock()
	if full {
		return false
	}
	select {
	case q.more <- struct{}{}:
	default:
	}
	return true
}

// wait waits for a message, and returns its ends. It returns false once ctx is done.
func (q *queue) wait(ctx context.Context) (ends, bool) {
	for {
		q.mu.Lock()
		if len(q.all) > 0 {
			e := q.all[0].ends
			q.mu.Unlock()
			return e, ctx.Err() == nil
		}
		q.mu.Unlock()
		select {
		case <-q.more:
		case <-ctx.Done():
			return ends{}, false
		}
	}
}

// expire removes the messages at the front of the queue that were added before `oldest`, and returns
// their number.
func (q *queue) expire(oldest time.Time) (late int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.all) > 0 && q.all[0].since.Before(oldest) {
		q.bytes -= q.all[0].size()
		q.all[0] = waiting{}
		q.all = q.all[1:]
		late++
	}
	return late
}

// take removes the first messages between the same members, up to about maxBatch bytes. It drops
// messages that were added before `oldest`, and returns the number of dropped messages as `late`.
func (q *queue) take(between ends, oldest time.Time) (batch wire.Parts, size, late int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for ; n < len(q.all); n++ {
		w := &q.all[n]
		if w.since.Before(oldest) {
			late++
		} else if w.ends != between || len(batch) > 0 && size+w.message.Bytes > maxBatch {
			break
		} else {
			size += w.message.Bytes
			batch = append(batch, w.message)
		}
		q.bytes -= w.size()
		*w = waiting{}
	}
	q.all = q.all[n:]
	if len(q.all) == 0 {
		q.all = nil // releases the array, since append would not use its front again
	}
	return batch, size, late
}
