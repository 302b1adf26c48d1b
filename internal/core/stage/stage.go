// Package stage says where the time of a measurement goes: through which stages a batch passes, how
// old it was when it came to each, and how long it stayed. Callers that measure times hand them in.
// Callers that read the times get histograms, whose size does not grow with the number of batches.
//
//	            read    parse    window    forward    journal    tile               visible
//	dogstatsd   ──●────────●────────●─────────●──────────●─────────●───────────────────●
//	tiles                                                             distribute    append
//	                                                                  ──●──────────────●
//	            read    parse                                 distribute    queue   append   visible
//	remote_write, otlp ──●────────●───────────────────────────────●──────────●────────●─────────●
package stage

import (
	"sync"
	"time"
)

// Stage is a step of the pipeline.
type Stage uint8

// The stages in the order of flow.
const (
	Read       Stage = iota // out of the kernel, or a request's body
	Parse                   // into values: lines counted in the window, or a request decoded
	Window                  // from the end of a second until its batches are made
	Forward                 // until the aggregator takes the batches
	Journal                 // appended; from here on the batches survive the death of the process
	Tile                    // folded into open tiles
	Distribute              // until the stores get the batches: rules, limits, replicas
	Queue                   // until a worker of the ingester takes the request
	Append                  // committed in the store
	Visible                 // all stages, from birth until queries see the batch
	NumStages
)

var names = [NumStages]string{
	"read", "parse", "window", "forward", "journal", "tile", "distribute", "queue", "append", "visible",
}

// String returns the stage's name in metrics, configuration and pages.
func (s Stage) String() string { return names[s] }

// Input is a way in for samples.
type Input uint8

// The inputs. Tiles are DogStatsD's samples on their way to the stores.
const (
	DogStatsD Input = iota
	RemoteWrite
	OTLP
	Tiles
	NumInputs
)

var inputs = [NumInputs]string{"dogstatsd", "remote_write", "otlp", "tiles"}

// String returns the input's name in metrics.
func (i Input) String() string { return inputs[i] }

// Trip is one batch on its way through the stages. A zero time means that the batch did not reach
// the stage. The methods of a nil *Trip do nothing.
//
// A Trip does not include stages that the batch passes after the trip has ended.
type Trip struct {
	Input   Input
	Tenant  string
	Born    time.Time // when the first measurement was read; for a tile, the tile's end
	Samples int       // values on the wire
	Parent  string    // trace context of the sender, in W3C's form; mostly empty

	mu    sync.Mutex
	ended bool
	spans [NumStages]span
}

// span is when a trip was in a stage, as times since the trip's birth.
type span struct {
	entered, left time.Duration
	inside        bool // the trip entered, and may have left
	passed        bool
	elsewhere     bool // another process knows the times
}

// Enter notes that the batch enters a stage.
func (t *Trip) Enter(s Stage, now time.Time) { t.Pass(NumStages, s, now) }

// Leave notes that the batch has passed the stage.
func (t *Trip) Leave(s Stage, now time.Time) { t.Pass(s, NumStages, now) }

// Pass is Leave of one stage and Enter of the next.
func (t *Trip) Pass(from, to Stage, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	age := t.age(now)
	if from < NumStages {
		span := &t.spans[from]
		span.left, span.passed = max(age, span.entered), true
	}
	if to < NumStages {
		t.spans[to] = span{entered: age, inside: true}
	}
}

// Elsewhere notes that the batch passed a stage in another process, which knows its times. Here only the batch's
// samples count.
func (t *Trip) Elsewhere(s Stage) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.spans[s] = span{elsewhere: true}
	}
}

// Count adds samples to the trip. Call it before the trip is shared.
func (t *Trip) Count(samples int) {
	if t != nil {
		t.Samples += samples
	}
}

// Add adds time that a stage took after the batch left it, such as for syncing the batch to disk.
func (t *Trip) Add(s Stage, spent time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.spans[s].left += spent
	}
}

// Fail notes that the batch ends now, in the stage that it is in.
func (t *Trip) Fail(now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.spans {
		if span := &t.spans[s]; span.inside && !span.passed && !t.ended {
			span.left, span.passed = max(t.age(now), span.entered), true
		}
	}
}

// Seen notes that queries see the batch from now on.
func (t *Trip) Seen(now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.spans[Visible] = span{left: t.age(now), passed: true}
	}
}

// age is never negative, even if the clock was set back.
func (t *Trip) age(now time.Time) time.Duration { return max(0, now.Sub(t.Born)) }

// Passed returns when an ended trip entered and left a stage, as times since its birth. `ok` is
// false if the trip did not pass the stage.
func (t *Trip) Passed(s Stage) (entered, left time.Duration, ok bool) {
	span := t.spans[s]
	return span.entered, span.left, span.passed
}

// Took returns the time from the birth to the end of the last stage.
func (t *Trip) Took() (took time.Duration) {
	for s := range t.spans {
		if t.spans[s].passed {
			took = max(took, t.spans[s].left)
		}
	}
	return took
}
