package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/coalesce"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/queue"
	"github.com/freshet-io/freshet/internal/core/segment"
)

// file is one of the two files of an outbox. Outbox.mu guards all fields but the queue.
type file struct {
	queue   *queue.Queue
	waiting []held // the oldest first
	taken   uint64 // how many frames have left `waiting`
}

// held is a frame that waits: the pushes of one window, or of the windows of one tile.
type held struct {
	windows  []window
	answered int       // how many of the windows have their fates
	tile     int64     // end of the first window's tile, Unix seconds
	written  time.Time // when the oldest of the windows was written
}

// window is a push. Its batches are of one tenant.
type window struct {
	id
	tenant  string
	samples uint64
	again   bool // it was tried before it was written
}

// id identifies a push of this producer.
type id struct{ incarnation, sequence uint64 }

// last returns the id of the last window, which identifies the frame.
func (h held) last() id { return h.windows[len(h.windows)-1].id }

func (h held) samples() (n uint64) {
	for _, w := range h.windows {
		n += w.samples
	}
	return n
}

// openFile opens a file. found gets each frame that waits, and the error of a frame that cannot be read.
func openFile(o *Options, fs segment.FS, found func(f queue.Frame, h held, err error)) (*file, error) {
	var mark [4]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return nil, err
	}
	q, err := queue.Open(fs, queue.Options{
		MaxBytes: o.MaxBytes / 2, Mark: binary.LittleEndian.Uint32(mark[:]),
		Damaged: func(d segment.Damage) {
			o.Logger.Error("the outbox is damaged; its undamaged part is sent", "place", d.String())
		},
		Found: func(f queue.Frame) {
			h, err := describe(f)
			found(f, h, err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return &file{queue: q}, nil
}

// describe returns what is in a frame. The error is batch.ErrRefused.
func describe(f queue.Frame) (held, error) {
	h := held{written: time.UnixMilli(f.Time)}
	for push := range entry.List(f.Payload).All() {
		w, tile, err := describePush(push)
		if err != nil {
			return held{}, err
		}
		if len(h.windows) == 0 {
			h.tile = tile
		}
		h.windows = append(h.windows, w)
	}
	switch len(h.windows) {
	case 0:
		return held{}, fmt.Errorf("%w: a frame of the outbox has no windows", batch.ErrRefused)
	case 1:
		h.windows[0].samples = uint64(f.Samples)
	default:
		i := 0
		for push := range entry.List(f.Payload).All() {
			h.windows[i].samples = count(push)
			i++
		}
	}
	return h, nil
}

// describePush returns a push without its samples, and the end of its tile.
func describePush(push []byte) (w window, tile int64, err error) {
	if err := member.CheckPush(push); err != nil {
		return w, 0, err
	}
	p, err := entry.ParsePush(push)
	for b := range p.Batches.All() {
		h, _ := batch.ParseHeader(b) // CheckPush has read it
		w = window{id: id{p.Incarnation, p.Sequence}, tenant: string(h.Tenant), again: p.Again}
		return w, coalesce.Tile(h.Second), err
	}
	return w, 0, fmt.Errorf("%w: a push has no batches", batch.ErrRefused)
}

// count returns the number of samples in a push.
func count(push []byte) (samples uint64) {
	p, _ := entry.ParsePush(push) // describePush has read it
	var r batch.Reader
	for b := range p.Batches.All() {
		if r.Reset(b) != nil {
			continue
		}
		for inc := r.Next(); inc != nil; inc = r.Next() {
			samples += uint64(inc.Samples)
		}
	}
	return samples
}

// append writes a frame, and returns the frames that were given up for it.
func (f *file) append(h held, payload []byte) (gone []held, err error) {
	_ = f.queue.Prepare() // if it fails on a full disk, nothing is sent until there is space: see saved
	givenUp, err := f.queue.Append(queue.Frame{
		Time: h.written.UnixMilli(), Samples: uint32(min(h.samples(), math.MaxUint32)), Payload: payload,
	})
	gone = f.pop(int(min(givenUp.Frames, uint64(len(f.waiting)))))
	if err == nil {
		f.waiting = append(f.waiting, h)
	}
	return gone, err
}

// pop removes the n oldest frames from `waiting`.
func (f *file) pop(n int) []held {
	gone := f.waiting[:n:n]
	f.waiting = f.waiting[n:]
	f.taken += uint64(n)
	if len(f.waiting) == 0 {
		f.waiting = nil // frees the memory of a long outage
	}
	return gone
}
