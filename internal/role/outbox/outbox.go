// Package outbox is the role that hands a collector's windows to the leader of a group. A window that no leader
// acknowledges within a second goes into a file, so that it survives the process: a kill of a collector
// loses the last second, whatever the cluster does. While windows wait, all later ones go into the file, too, since
// none may overtake another: a repeat is recognized by its sequence. The next process sends what it finds in the
// file, as it is, before its own windows.
//
// The file is a queue of core/queue. Layout: docs/format/outbox.md.
package outbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/queue"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/lib/retry"
	"github.com/freshet-io/freshet/internal/settings"
)

// Leader is the leader of the group, wherever it is.
type Leader interface {
	// Push hands over a push in the form of entry.AppendPush, and waits until it counts: see package batch for the
	// errors. `sent` reports whether the push may count even after an error.
	Push(ctx context.Context, push []byte) (sent bool, err error)
}

// Options are the parts of an Outbox.
type Options struct {
	Leader   Leader
	FS       segment.FS // a directory of its own
	MaxBytes int64      // of the file, at least settings.MinOutbox; over it the oldest windows are given up
	Ledger   *ledger.Ledger
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

const (
	// patience is how long a window waits for its acknowledgement in memory. An election takes 1 to 2 s.
	patience = time.Second

	// tryTime bounds one try to hand over a window of the file. The next try reads it again, since it may have been
	// given up.
	tryTime = 5 * time.Second

	// stopTime is how long a stopping process tries to hand over what waits. The next process sends the rest.
	stopTime = 3 * time.Second

	// forgetting is the age at which a window is not sent again if a leader may have it already. The group remembers
	// a silent producer's sequence for an hour: after that, the window could count twice.
	forgetting = 50 * time.Minute
)

// Outbox hands windows to the leader. One goroutine calls Push; it must stop before the context of Run is done.
type Outbox struct {
	Options
	metrics *metrics
	queue   *queue.Queue
	wake    chan struct{} // signals a window that was written
	backoff retry.Backoff

	mu      sync.Mutex
	waiting []window // in the file, the oldest first
	taken   uint64   // how many windows have left `waiting`
	tried   id       // the window that a leader may have, although it did not acknowledge it
	own     uint64   // incarnation of the windows that this process pushes; 0 before the first
	since   time.Time
}

// window is a push that waits in the file, or a push on its way. Its batches are of one tenant.
type window struct {
	id
	tenant  string
	samples uint64
}

// id identifies a push of this producer.
type id struct{ incarnation, sequence uint64 }

// New opens the file, and finds the windows of an earlier process in it.
func New(o Options) (*Outbox, error) {
	if o.MaxBytes < settings.MinOutbox {
		panic(fmt.Sprintf("BUG: an outbox of %d bytes", o.MaxBytes))
	}
	out := &Outbox{Options: o, metrics: newMetrics(o.Registry), wake: make(chan struct{}, 1),
		backoff: retry.Backoff{Min: 50 * time.Millisecond, Max: time.Second}}
	var mark [4]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return nil, err
	}
	var err error
	out.queue, err = queue.Open(o.FS, queue.Options{
		MaxBytes: o.MaxBytes, Mark: binary.LittleEndian.Uint32(mark[:]), Damaged: out.damaged, Found: out.found,
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	watch(o.Registry, out.queue.Waiting)
	if sum, oldest := out.queue.Waiting(); sum.Frames > 0 {
		out.since = time.Now()
		o.Logger.Info("windows of an earlier process wait in the outbox; they are sent first", "windows", sum.Frames,
			"samples", sum.Samples, "bytes", sum.Bytes, "oldest", time.UnixMilli(oldest).UTC())
	}
	return out, nil
}

// found puts a window of an earlier process into the books.
func (o *Outbox) found(f queue.Frame) {
	w := window{samples: uint64(f.Samples)}
	var err error
	if w.id, w.tenant, err = describe(f.Payload); err != nil { // send refuses it
		w.tenant = ledger.Others
	}
	if len(o.waiting) == 0 {
		o.tried = w.id // the process may have died before it read the acknowledgement
	}
	o.waiting = append(o.waiting, w)
	o.Ledger.Post(w.tenant, ledger.Transfer{From: ledger.Outside, To: ledger.Restored, Samples: w.samples},
		ledger.Transfer{From: ledger.Restored, To: ledger.Window, Samples: w.samples})
}

// describe returns the id and the tenant of a push. The error is batch.ErrRefused.
func describe(push []byte) (of id, tenant string, err error) {
	if err := member.CheckPush(push); err != nil {
		return of, tenant, err
	}
	p, err := entry.ParsePush(push)
	for b := range p.Batches.All() {
		h, _ := batch.ParseHeader(b) // CheckPush has read it
		return id{p.Incarnation, p.Sequence}, string(h.Tenant), err
	}
	return of, tenant, fmt.Errorf("%w: it has no batches", batch.ErrRefused)
}

func (o *Outbox) damaged(d segment.Damage) {
	o.Logger.Error("the outbox is damaged; its undamaged part is sent", "place", d.String())
}

// Through implements collector.Aggregator. Members know from their log how far open tiles answer.
func (o *Outbox) Through(int64) {}

// Push implements collector.Aggregator. It returns nil once a leader has acknowledged the window, or once it is in
// the file. Its caller puts into the books what is refused.
func (o *Outbox) Push(ctx context.Context, batches []batch.Batch) error {
	if len(batches) == 0 {
		return nil
	}
	push, err := member.PushOf(batches)
	if err != nil {
		return err
	}
	var w window
	if w.id, w.tenant, err = describe(push); err != nil {
		return err
	}
	for _, b := range batches {
		w.samples += b.Samples
	}
	if !o.next(w.id) {
		return o.keep(w, push, nil)
	}
	if o.mayCount(w.id) {
		push = entry.Again(push)
	}
	trying, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sent, err := o.Leader.Push(trying, push)
	if known(err) {
		o.post(w, ledger.Transfer{To: ledger.HandedOver, Samples: w.samples - lost(w, err)})
		return err
	}
	if sent {
		o.note(w.id)
		push = entry.Again(push)
	}
	if kept := o.keep(w, push, err); kept != nil {
		return fmt.Errorf("%w; %w", err, kept)
	}
	return nil
}

// next reports whether no window waits before a window of this process.
func (o *Outbox) next(of id) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.own = of.incarnation
	return len(o.waiting) == 0
}

// note notes that a leader may have a window.
func (o *Outbox) note(of id) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried = of
}

func (o *Outbox) mayCount(of id) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tried == of
}

// known reports whether an error of a push says what became of it for good.
func known(err error) bool {
	var full *batch.FullError
	return err == nil || errors.Is(err, batch.ErrRefused) || errors.As(err, &full)
}

// lost returns how many samples of a window its leader refused for good.
func lost(w window, err error) uint64 {
	var full *batch.FullError
	switch {
	case errors.As(err, &full):
		return min(w.samples, full.Samples[w.tenant])
	case err != nil:
		return w.samples
	}
	return 0
}

// keep writes a window into the file. `cause` says why no leader has it, if it was tried.
func (o *Outbox) keep(w window, push []byte, cause error) error {
	frame := queue.Frame{Time: time.Now().UnixMilli(), Samples: uint32(min(w.samples, math.MaxUint32)), Payload: push}
	o.mu.Lock()
	givenUp, err := o.queue.Append(frame)
	gone := o.pop(int(min(givenUp.Frames, uint64(len(o.waiting)))))
	begins := len(o.waiting) == 0
	if err == nil {
		o.waiting = append(o.waiting, w)
		if begins && len(gone) == 0 {
			o.since = time.Now()
		}
	}
	o.mu.Unlock()
	if len(gone) > 0 {
		o.unsent(gone, unsentFull)
		o.Logger.Error("samples are lost: the outbox is full, and its oldest windows are given up",
			"windows", givenUp.Frames, "samples", givenUp.Samples, "bytes", givenUp.Bytes, "limit", o.MaxBytes)
	}
	if err != nil {
		o.metrics.errors.Inc()
		return fmt.Errorf("outbox: %w", err)
	}
	o.metrics.written.Inc()
	if begins {
		o.Logger.Warn("no leader acknowledged the window; windows wait in the outbox until one does", "error", cause)
	}
	select {
	case o.wake <- struct{}{}:
	default: // Run is already signalled
	}
	return nil
}

// pop removes the n oldest windows from `waiting`. The caller holds mu.
func (o *Outbox) pop(n int) []window {
	gone := o.waiting[:n:n]
	o.waiting = o.waiting[n:]
	o.taken += uint64(n)
	return gone
}

// unsent puts windows that are given up into the books.
func (o *Outbox) unsent(gone []window, reason string) {
	for _, w := range gone {
		o.metrics.unsent.WithLabelValues(reason).Add(float64(w.samples))
		o.post(w, ledger.Transfer{To: ledger.Unsent, Reason: reason, Samples: w.samples})
	}
}

// post puts a window, or a part of it, into the books.
func (o *Outbox) post(w window, t ledger.Transfer) {
	t.From = ledger.Window
	o.Ledger.Post(w.tenant, t)
}

// Run hands over what waits in the file until ctx is done, and a little longer. Then it closes the file.
func (o *Outbox) Run(ctx context.Context) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTime, stop) })()
	for sending.Err() == nil {
		begin, end := o.ordinals()
		if begin == end && ctx.Err() != nil {
			break
		}
		frame, found, err := o.queue.Peek()
		switch {
		case err != nil:
			o.metrics.errors.Inc()
			o.Logger.Error("the outbox cannot be read; the next attempt follows soon", "error", err)
			_ = retry.Wait(sending, o.backoff.Next()) // the loop checks the context
		case found:
			o.send(sending, frame)
		default:
			o.unreadable(end)
			select {
			case <-o.wake:
			case <-ctx.Done():
			}
		}
	}
	if sum, oldest := o.queue.Waiting(); sum.Frames > 0 {
		o.Logger.Warn("windows stay in the outbox, since no leader acknowledged them; the next process sends them",
			"windows", sum.Frames, "samples", sum.Samples, "oldest", time.UnixMilli(oldest).UTC())
	}
	return o.queue.Close()
}

// ordinals returns the ordinal of the oldest window that waits, and the ordinal after the newest.
func (o *Outbox) ordinals() (begin, end uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken, o.taken + uint64(len(o.waiting))
}

// unreadable gives up the windows before an ordinal: the file was read to its end without them.
func (o *Outbox) unreadable(end uint64) {
	o.mu.Lock()
	var gone []window
	if end > o.taken {
		gone = o.pop(int(end - o.taken))
	}
	o.mu.Unlock()
	o.unsent(gone, unsentDamaged)
}

// send tries once to hand over a window of the file.
func (o *Outbox) send(ctx context.Context, frame queue.Frame) {
	push := bytes.Clone(frame.Payload) // a call may use it after its context has ended
	of, _, err := describe(push)
	if err == nil {
		if o.mayCount(of) && time.Since(time.UnixMilli(frame.Time)) > forgetting {
			o.settle(of, unsentForgotten, nil)
			return
		}
		if o.again(of) {
			push = entry.Again(push)
		}
		trying, cancel := context.WithTimeout(ctx, tryTime)
		defer cancel()
		var sent bool
		if sent, err = o.Leader.Push(trying, push); sent && err != nil {
			o.note(of)
		}
	}
	if !known(err) {
		if ctx.Err() == nil {
			_ = retry.Wait(ctx, o.backoff.Next()) // the caller checks the context
		}
		return
	}
	o.backoff.Reset()
	o.settle(of, "", err)
}

// again reports whether a window may have been sent before.
func (o *Outbox) again(of id) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tried == of || o.own != of.incarnation
}

// settle takes the window that was read out of the file. It is unsent for a reason, or its leader answered.
func (o *Outbox) settle(of id, reason string, answer error) {
	if _, err := o.queue.Done(); err != nil {
		o.metrics.errors.Inc()
		o.Logger.Error("what a leader acknowledged could not be removed from the outbox: after a restart it is sent "+
			"again", "error", err)
	}
	o.mu.Lock()
	var damaged, read []window
	for i, w := range o.waiting {
		if w.id == of { // otherwise it was given up meanwhile
			damaged, read = o.pop(i), o.pop(1)
			break
		}
	}
	empty, since := len(o.waiting) == 0, o.since
	if empty {
		o.waiting = nil // frees the memory of a long outage
	}
	o.mu.Unlock()
	o.unsent(damaged, unsentDamaged)
	switch {
	case reason != "":
		o.unsent(read, reason)
		o.Logger.Error("a window in the outbox is given up: a leader may have it, and the cluster may have forgotten so",
			"older_than", forgetting)
	default:
		o.answered(read, answer)
	}
	if empty {
		o.queue.Trim()
		o.Logger.Info("the outbox is empty: a leader has acknowledged all windows",
			"after", time.Since(since).Round(time.Millisecond))
	}
}

// answered puts the answer of a leader into the books.
func (o *Outbox) answered(read []window, answer error) {
	for _, w := range read {
		refused, reason := lost(w, answer), reasonPending
		if errors.Is(answer, batch.ErrRefused) {
			reason = reasonNotTaken
		}
		o.post(w, ledger.Transfer{To: ledger.HandedOver, Samples: w.samples - refused})
		o.post(w, ledger.Transfer{To: ledger.Refused, Reason: reason, Samples: refused})
	}
	if answer != nil {
		o.Logger.Error("samples are lost: the leader refused a window", "error", answer)
	}
}
