package outbox

import (
	"errors"
	"time"

	"github.com/freshet-io/freshet/internal/core/coalesce"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/queue"
)

const (
	// coalesceAfter is how long the oldest window waits before windows are coalesced.
	coalesceAfter = 10 * time.Second

	// closedAfter is the time from the end of a tile until its windows are coalesced. The tile's last
	// window comes a second after that end. If windows grow, the last one comes later, and is coalesced
	// alone.
	closedAfter = 2 * time.Second

	// coalesceBytes bounds the windows that are coalesced at once, in bytes: ten windows of 10,000 series have 6 MB.
	coalesceBytes = 15 << 20
)

// coalesce moves the oldest windows of one tile from `seconds` into one frame of `tiles`, if they have
// waited for long. It reports whether it moved them. Meanwhile no window of `seconds` is being sent.
func (o *Outbox) coalesce() bool {
	if !o.mayCoalesce() {
		return false
	}
	ahead, err := o.seconds.queue.Ahead(coalesceBytes)
	if err != nil || len(ahead) == 0 {
		return false // the next Peek fails, too, and says so
	}
	whole, n, payload := o.coalesced(ahead)
	if n == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.seconds.beginsWith(ahead[:n]) { // the oldest were given up, or are damaged
		return false
	}
	gone, err := o.tiles.append(whole, payload)
	o.giveUp(gone)
	if err != nil {
		o.metrics.errors.Inc()
		o.Logger.Error("windows in the outbox cannot be coalesced, and take more space", "error", err)
		return false
	}
	o.seconds.pop(n)
	for range n {
		_, found, err := o.seconds.queue.Peek()
		if err == nil && found {
			_, err = o.seconds.queue.Done()
		}
		if err != nil { // the windows are sent again, as repeats
			o.metrics.errors.Inc()
		}
	}
	if len(o.seconds.waiting) == 0 {
		o.seconds.queue.Trim()
	}
	o.metrics.coalesced.Add(float64(n))
	return true
}

// mayCoalesce reports whether windows have waited for long, and all windows of the first tile are there.
func (o *Outbox) mayCoalesce() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	oldest := o.oldest()
	if len(o.seconds.waiting) == 0 || oldest == nil || len(oldest.waiting) == 0 {
		return false
	}
	return time.Since(oldest.waiting[0].written) >= coalesceAfter &&
		time.Since(time.Unix(o.seconds.waiting[0].tile, 0)) >= closedAfter
}

// beginsWith reports whether `frames` are the oldest frames that wait.
func (f *file) beginsWith(frames []queue.Frame) bool {
	if len(frames) > len(f.waiting) {
		return false
	}
	for i, frame := range frames {
		if h, err := describe(frame); err != nil || h.last() != f.waiting[i].last() {
			return false
		}
	}
	return true
}

// coalesced returns the frame for the windows of the first tile, and how many frames of `ahead` are in it. Windows that
// a leader may have stay as they are, and so do all windows if they cannot be coalesced. n is 0 if the first frame
// cannot be read.
func (o *Outbox) coalesced(ahead []queue.Frame) (whole held, n int, payload entry.List) {
	var pushes entry.List // as they are
	var coalescer coalesce.Coalescer
	var failed error
	var each []window
	for _, frame := range ahead {
		h, err := describe(frame)
		if err != nil || n > 0 && (h.tile != whole.tile || h.last().incarnation != whole.last().incarnation) {
			break
		}
		if n == 0 {
			whole.tile, whole.written = h.tile, h.written
		}
		n++
		whole.windows = append(whole.windows, h.windows...)
		i := 0
		for push := range entry.List(frame.Payload).All() {
			w := h.windows[i]
			i++
			pushes = pushes.Append(push)
			if w.again || o.mayCount(w.id) {
				payload = payload.Append(push)
				each = append(each, w)
				continue
			}
			failed = errors.Join(failed, coalescer.Add(push))
		}
	}
	windows, err := coalescer.Windows()
	if failed != nil || err != nil { // damaged, of a newer program, or too large
		return whole, n, pushes
	}
	for _, j := range windows {
		w, _, err := describePush(j.Push)
		if err != nil {
			return whole, n, pushes
		}
		w.samples = j.Samples
		payload, each = payload.Append(j.Push), append(each, w)
	}
	if len(payload) > coalesceBytes { // the coalesced windows are longer: readings take twice the space
		return whole, n, pushes
	}
	whole.windows = each
	return whole, n, payload
}
