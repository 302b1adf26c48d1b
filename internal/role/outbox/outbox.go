// Package outbox is the role that hands a collector's windows to the leader of a group. A window that no leader
// acknowledges within a second goes into a file, so that it survives the process: a kill of a collector
// loses the last second, whatever the cluster does. While windows wait, all later ones go into the file, too, since
// none may overtake another: a repeat is recognized by its sequence. The next process sends what it finds in the
// file before its own windows.
//
// After 10 s without a leader, the windows of a tile are coalesced (core/coalesce). The coalesced windows are in a file
// of their own, and are older than all windows in the first file.
//
// # Windows that a leader may have
//
// A window that a leader may have is sent again unchanged, so that the group recognizes it. It is never
// coalesced with others: the group would not recognize it, and it would count twice. In the process that
// made them, such windows are those up to the last one whose answer was lost. In the next process, they
// are:
//
//   - the first window that it finds. It is the only one that may be acknowledged and still in the file, since the
//     next one is sent once the file's position is saved.
//   - each window that was tried before it was written: it has the flag entry.Again.
//   - each window of another boot of the machine. The positions are not synced, so a power loss may bring back any
//     number of acknowledged windows.
//
// The files are queues of core/queue. Layout: docs/format/outbox.md.
package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	Leader         Leader
	Seconds, Tiles segment.FS // directories of their own
	Boot           string     // names the boot of the machine; empty if it is not known
	MaxBytes       int64      // of both files, at least settings.MinOutbox; over it the oldest windows are given up
	Ledger         *ledger.Ledger
	Registry       prometheus.Registerer
	Logger         *slog.Logger
}

const (
	// patience is how long a window waits for its acknowledgement in memory. An election takes 1 to 2 s.
	patience = time.Second

	// tryTime bounds one try to hand over a window of a file. The next try reads it again, since it may have been
	// given up.
	tryTime = 5 * time.Second

	// leaveTime bounds the try of a stopping process to say that it has stopped.
	leaveTime = time.Second

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
	wake    chan struct{} // signals a window that was written
	backoff retry.Backoff
	unsaved bool // a position cannot be saved

	mu             sync.Mutex
	seconds, tiles *file
	boot           boot
	tried          id     // a leader may have the windows up to this one, although no answer came
	own            uint64 // incarnation of the windows that this process pushes; 0 before the first
	since          time.Time
	last           entry.Push // the last push that a leader has acknowledged, without its batches
}

// New opens the files, and finds the windows of an earlier process in them.
func New(o Options) (*Outbox, error) {
	if o.MaxBytes < settings.MinOutbox {
		panic(fmt.Sprintf("BUG: an outbox of %d bytes", o.MaxBytes))
	}
	out := &Outbox{Options: o, metrics: newMetrics(o.Registry), wake: make(chan struct{}, 1),
		backoff: retry.Backoff{Min: 50 * time.Millisecond, Max: time.Second}}
	out.boot = readBoot(o.Seconds, o.Boot)
	var tiles, seconds []held
	var coalesced id // the last window that was coalesced
	contained := 0   // coalesced windows that are still here, since the process died or the disk failed
	var err error
	out.tiles, err = openFile(&out.Options, o.Tiles, func(f queue.Frame, h held, err error) {
		h = described(f, h, err)
		tiles, coalesced = append(tiles, h), h.last()
	})
	if err != nil {
		return nil, err
	}
	out.seconds, err = openFile(&out.Options, o.Seconds, func(f queue.Frame, h held, err error) {
		seconds = append(seconds, described(f, h, err))
		if err == nil && !h.last().after(coalesced) { // then the windows before it are coalesced, too
			contained = len(seconds)
		}
	})
	if err != nil {
		return nil, errors.Join(err, out.tiles.queue.Close())
	}
	seconds = seconds[contained:]
	for range contained {
		if _, found, err := out.seconds.queue.Peek(); err == nil && found {
			_, _ = out.seconds.queue.Done() // if it fails, `saved` tries again
		}
	}
	out.restored(slices.Concat(tiles, seconds))
	out.tiles.waiting, out.seconds.waiting = tiles, seconds
	out.boot.keep(slices.Concat(tiles, seconds))
	watch(o.Registry, out.Waiting)
	if first := out.oldest().waiting; len(first) > 0 {
		out.since = time.Now()
		out.tried = first[0].last() // the process may have died before it read the acknowledgement
		sum, oldest := out.amount()
		o.Logger.Info("windows of an earlier process wait in the outbox; they are sent first", "frames", sum.Frames,
			"samples", sum.Samples, "bytes", sum.Bytes, "oldest", time.UnixMilli(oldest).UTC())
	}
	return out, nil
}

// after reports whether a window comes after another, or is of another process.
func (i id) after(other id) bool {
	return i.incarnation != other.incarnation || i.sequence > other.sequence
}

// described returns the content of a frame. A frame that cannot be read has one window, and send refuses
// it.
func described(f queue.Frame, h held, err error) held {
	if err != nil {
		h.windows = []window{{tenant: ledger.Others, samples: uint64(f.Samples)}}
	}
	return h
}

// restored puts the windows of earlier processes into the books.
func (o *Outbox) restored(all []held) {
	for _, h := range all {
		for _, w := range h.windows {
			o.Ledger.Post(w.tenant, ledger.Transfer{From: ledger.Outside, To: ledger.Restored, Samples: w.samples},
				ledger.Transfer{From: ledger.Restored, To: ledger.Window, Samples: w.samples})
		}
	}
}

// amount returns what waits in both files, and the time of the oldest, in Unix milliseconds.
func (o *Outbox) amount() (sum queue.Amount, oldest int64) {
	sum, oldest = o.tiles.queue.Waiting()
	more, next := o.seconds.queue.Waiting()
	if sum.Frames == 0 {
		oldest = next
	}
	sum.Frames += more.Frames
	sum.Samples += more.Samples
	sum.Bytes += more.Bytes
	return sum, oldest
}

// Waiting returns how much waits on disk, and the age of the oldest window; 0 if none waits.
func (o *Outbox) Waiting() (sum queue.Amount, age time.Duration) {
	sum, oldest := o.amount()
	if sum.Frames == 0 {
		return sum, 0
	}
	return sum, max(0, time.Since(time.UnixMilli(oldest)))
}

// oldest returns the file with the oldest window, if any waits. The caller holds mu.
func (o *Outbox) oldest() *file {
	if len(o.tiles.waiting) > 0 {
		return o.tiles
	}
	return o.seconds
}

// Through implements collector.Aggregator. It does nothing, since members know from their log how far
// open tiles answer.
func (o *Outbox) Through(int64) {}

// Push implements collector.Aggregator. It returns nil once a leader has acknowledged the window, or once it is in
// the file. The caller puts refused samples into the books.
func (o *Outbox) Push(ctx context.Context, batches []batch.Batch) error {
	if len(batches) == 0 {
		return nil
	}
	push, err := member.PushOf(batches)
	if err != nil {
		return err
	}
	w, tile, err := describePush(push)
	if err != nil {
		return err
	}
	for _, b := range batches {
		w.samples += b.Samples
	}
	h := held{windows: []window{w}, tile: tile, written: time.Now()}
	if !o.next(w.id) {
		return o.keep(h, push, nil)
	}
	if o.mayCount(w.id) {
		push = entry.Again(push)
	}
	trying, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sent, err := o.Leader.Push(trying, push)
	o.answered(push, err)
	if known(err) {
		o.post(w, ledger.Transfer{To: ledger.HandedOver, Samples: w.samples - lost(w, err)})
		return err
	}
	if sent {
		o.note(w.id)
		push = entry.Again(push)
	}
	if kept := o.keep(h, push, err); kept != nil {
		return fmt.Errorf("%w; %w", err, kept)
	}
	return nil
}

// next reports whether a window of this process may be sent now, because no other window waits before
// it.
func (o *Outbox) next(of id) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.own = of.incarnation
	return len(o.oldest().waiting) == 0
}

// note notes that a leader may have a window.
func (o *Outbox) note(of id) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried = of
}

// mayCount reports whether a leader may have a window.
func (o *Outbox) mayCount(of id) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !of.after(o.tried) || of.incarnation != o.own && !o.boot.has(of.incarnation)
}

// known reports whether the error of a push settles the fate of the push for good.
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
func (o *Outbox) keep(h held, push []byte, cause error) error {
	o.mu.Lock()
	begins := len(o.oldest().waiting) == 0
	o.boot.add(h.last().incarnation)
	gone, err := o.seconds.append(h, entry.List{}.Append(push))
	if begins && err == nil {
		o.since = time.Now()
	}
	o.mu.Unlock()
	o.giveUp(gone)
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

// giveUp puts into the books the windows that made room for newer ones.
func (o *Outbox) giveUp(gone []held) {
	if len(gone) == 0 {
		return
	}
	o.unsent(gone, unsentFull)
	o.Logger.Error("samples are lost: the outbox is full, and its oldest windows are given up",
		"from", gone[0].written.UTC(), "to", gone[len(gone)-1].written.UTC(), "limit", o.MaxBytes)
}

// unsent puts into the books the windows that are not sent any more.
func (o *Outbox) unsent(gone []held, reason string) {
	for _, h := range gone {
		for _, w := range h.windows[h.answered:] {
			o.metrics.unsent.WithLabelValues(reason).Add(float64(w.samples))
			o.post(w, ledger.Transfer{To: ledger.Unsent, Reason: reason, Samples: w.samples})
		}
	}
}

// post puts a window, or a part of it, into the books.
func (o *Outbox) post(w window, t ledger.Transfer) {
	t.From = ledger.Window
	o.Ledger.Post(w.tenant, t)
}

// Run hands over the waiting windows until ctx is done, and a little longer. Then it closes the files.
func (o *Outbox) Run(ctx context.Context) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTime, stop) })()
	for sending.Err() == nil {
		for o.coalesce() {
		}
		f, begin, end := o.reads()
		if begin == end && ctx.Err() != nil {
			o.leave(sending)
			break
		}
		frame, found, err := f.queue.Peek()
		switch {
		case err != nil:
			o.metrics.errors.Inc()
			o.Logger.Error("the outbox cannot be read; the next attempt follows soon", "error", err)
			_ = retry.Wait(sending, o.backoff.Next()) // the loop checks the context
		case found && o.saved():
			o.send(sending, f, frame)
		case found:
			_ = retry.Wait(sending, o.backoff.Next()) // the loop checks the context
		case begin < end:
			o.unreadable(f, end)
		default:
			select {
			case <-o.wake:
			case <-ctx.Done():
			}
		}
	}
	if sum, oldest := o.amount(); sum.Frames > 0 {
		o.Logger.Warn("windows stay in the outbox, since no leader acknowledged them; the next process sends them",
			"samples", sum.Samples, "bytes", sum.Bytes, "oldest", time.UnixMilli(oldest).UTC())
	}
	return errors.Join(o.seconds.queue.Close(), o.tiles.queue.Close())
}

// answered notes a push that a leader has acknowledged.
func (o *Outbox) answered(push []byte, err error) {
	if err != nil {
		return
	}
	if p, err := entry.ParsePush(push); err == nil {
		p.Batches = nil // they point into the push
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last = p
	}
}

// leave tells the cluster that this process has sent all its windows. Otherwise the next leader would wait for it.
func (o *Outbox) leave(ctx context.Context) {
	o.mu.Lock()
	last := o.last
	o.mu.Unlock()
	if last.Producer == 0 {
		return // nothing was sent
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if _, err := o.Leader.Push(ctx, member.LeaveOf(last)); err != nil {
		o.Logger.Info("the cluster does not know that this collector has stopped; after an election it waits some seconds "+
			"for it", "error", err)
	}
}

// saved saves the positions that are not saved yet, and reports whether both are saved now.
func (o *Outbox) saved() bool {
	err := errors.Join(o.tiles.queue.Save(), o.seconds.queue.Save())
	if err != nil {
		o.metrics.errors.Inc()
	}
	if failed := err != nil; failed != o.unsaved {
		if o.unsaved = failed; failed {
			o.Logger.Error("the outbox cannot note what a leader has acknowledged, and sends nothing until it can, since "+
				"a restart would send it again", "error", err)
		} else {
			o.Logger.Info("the outbox sends again")
		}
	}
	return err == nil
}

// reads returns the file to read from, the ordinal of the oldest frame that waits there, and the ordinal after the
// newest.
func (o *Outbox) reads() (f *file, begin, end uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f = o.oldest()
	return f, f.taken, f.taken + uint64(len(f.waiting))
}

// unreadable gives up the frames before an ordinal: they were not found although the file was read to
// its end.
func (o *Outbox) unreadable(f *file, end uint64) {
	o.mu.Lock()
	var gone []held
	if end > f.taken {
		gone = f.pop(int(end - f.taken))
	}
	o.mu.Unlock()
	o.unsent(gone, unsentDamaged)
}

// send tries once to hand over the windows of a frame.
func (o *Outbox) send(ctx context.Context, f *file, frame queue.Frame) {
	h, err := describe(frame)
	if err != nil {
		h = held{windows: make([]window, 1)} // see found
	}
	waiting := o.skipTo(f, h.last())
	if err != nil {
		o.answer(waiting.windows, err)
		o.done(f, h.last())
		return
	}
	i := -1
	for push := range entry.List(frame.Payload).All() {
		if i++; i < waiting.answered || i >= len(waiting.windows) {
			continue
		}
		w := waiting.windows[i : i+1]
		if (w[0].again || o.mayCount(w[0].id)) && time.Since(h.written) > forgetting {
			if !o.resolved(f, h.last()) {
				return
			}
			o.unsent([]held{{windows: w}}, unsentForgotten)
			o.Logger.Error("a window in the outbox is given up: a leader may have it, and the cluster may have forgotten that",
				"older_than", forgetting)
			continue
		}
		answer := o.try(ctx, w[0], push)
		if !known(answer) {
			if ctx.Err() == nil {
				_ = retry.Wait(ctx, o.backoff.Next()) // the caller checks the context
			}
			return
		}
		o.backoff.Reset()
		if !o.resolved(f, h.last()) {
			return
		}
		o.answer(w, answer)
	}
	o.done(f, h.last())
}

// skipTo looks up, among the waiting frames, a frame that was read. It gives up the frames before it, which must be
// damaged. The result has no windows if the frame was given up or coalesced.
func (o *Outbox) skipTo(f *file, of id) (waiting held) {
	o.mu.Lock()
	var damaged []held
	for i, h := range f.waiting {
		if h.last() == of {
			damaged, waiting = f.pop(i), h
			break
		}
	}
	o.mu.Unlock()
	o.unsent(damaged, unsentDamaged)
	return waiting
}

// resolved notes that one more window of the oldest frame need not be sent again. It returns false if the frame
// was given up meanwhile, and is in the books as such.
func (o *Outbox) resolved(f *file, of id) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(f.waiting) == 0 || f.waiting[0].last() != of {
		return false
	}
	f.waiting[0].answered++
	return true
}

// done removes the oldest frame, whose windows all have their fates.
func (o *Outbox) done(f *file, of id) {
	if _, err := f.queue.Done(); err != nil {
		o.metrics.errors.Inc() // `saved` tries again
	}
	o.mu.Lock()
	if len(f.waiting) > 0 && f.waiting[0].last() == of { // otherwise it was given up meanwhile
		f.pop(1)
	}
	ended, empty, since := len(f.waiting) == 0, len(o.oldest().waiting) == 0, o.since
	o.mu.Unlock()
	if ended {
		f.queue.Trim()
	}
	if empty {
		o.Logger.Info("the outbox is empty: a leader has acknowledged all windows",
			"after", time.Since(since).Round(time.Millisecond))
	}
}

// answer puts the answer of a leader into the books.
func (o *Outbox) answer(windows []window, answer error) {
	for _, w := range windows {
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

// try tries once to hand over a window.
func (o *Outbox) try(ctx context.Context, w window, push []byte) error {
	push = bytes.Clone(push) // a call may use it after its context has ended
	if o.again(w.id) {
		push = entry.Again(push)
	}
	trying, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	sent, err := o.Leader.Push(trying, push)
	o.answered(push, err)
	if sent && err != nil {
		o.note(w.id)
	}
	return err
}

// again reports whether a window may have been sent before.
func (o *Outbox) again(of id) bool {
	return o.mayCount(of) || o.foreign(of)
}

// foreign reports whether a window is of an earlier process.
func (o *Outbox) foreign(of id) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.own != of.incarnation
}
