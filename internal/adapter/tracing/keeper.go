package tracing

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// keeper decides at the end of a trace, when its length is known, whether to keep it. A sampler
// would have to decide at the beginning.
type keeper struct {
	config  Config
	metrics *metrics
	onward  sdk.SpanProcessor // sends kept traces to the endpoint; nil if there is none

	mu     sync.Mutex
	open   map[trace.SpanID]*openTrace // by the ID of an open span; queries of one dashboard share a trace, but no span
	kept   []*Trace                    // at most config.Keep traces, oldest first
	second int64                       // the second, in Unix seconds, in which `inIt` traces were kept
	inIt   int
}

// openTrace has the ended spans of a trace whose root is still open.
type openTrace struct {
	spans []sdk.ReadOnlySpan
	left  uint64 // number of spans beyond maxSpans, which are left out
}

const (
	maxOpen  = 10_000 // limit of open spans; queries never open this many
	maxSpans = 200    // limit of spans of a trace; PromQL's engine makes a span for each part of a query
)

// Trace is a kept trace.
type Trace struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"` // dogstatsd, remote_write, otlp, tiles or query
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
	Over    string    `json:"over,omitempty"` // the stage that exceeded its budget
	Spans   []Span    `json:"spans"`          // ordered by start; the root comes first
	Left    uint64    `json:"spans_left_out,omitempty"`
}

// Span is a part of a trace.
type Span struct {
	ID         string         `json:"id"`
	Parent     string         `json:"parent,omitempty"` // for the root, the sender's span if the sender gave one
	Name       string         `json:"name"`
	Offset     float64        `json:"offset_seconds"` // time since the start of the trace
	Seconds    float64        `json:"seconds"`
	Attributes map[string]any `json:"attributes,omitempty"`
	Error      string         `json:"error,omitempty"`
}

func newKeeper(c Config, m *metrics) *keeper {
	return &keeper{config: c, metrics: m, open: map[trace.SpanID]*openTrace{}}
}

// OnStart is part of sdk.SpanProcessor.
func (k *keeper) OnStart(_ context.Context, s sdk.ReadWriteSpan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.open[s.Parent().SpanID()]
	if root(s) {
		o = new(openTrace)
	}
	switch {
	case o == nil: // the root has ended, or there was no room for the trace
	case len(k.open) < maxOpen:
		k.open[s.SpanContext().SpanID()] = o
	case root(s):
		k.metrics.skipped.Inc()
	}
}

// root reports whether a span has no parent in this process.
func root(s sdk.ReadOnlySpan) bool { return !s.Parent().IsValid() || s.Parent().IsRemote() }

// OnEnd is part of sdk.SpanProcessor.
func (k *keeper) OnEnd(s sdk.ReadOnlySpan) {
	id := s.SpanContext().SpanID()
	k.mu.Lock()
	o := k.open[id]
	delete(k.open, id)
	if o == nil {
		k.mu.Unlock()
		return
	}
	if !root(s) {
		if len(o.spans) < maxSpans {
			o.spans = append(o.spans, s)
		} else {
			o.left++
		}
		k.mu.Unlock()
		return
	}
	over := overOf(s)
	kept := over != "" || s.EndTime().Sub(s.StartTime()) > k.config.Query
	if second := time.Now().Unix(); second != k.second {
		k.second, k.inIt = second, 0
	}
	if kept && k.inIt >= perSecond {
		k.metrics.skipped.Inc()
		kept = false
	}
	if kept {
		k.inIt++
		k.metrics.kept.Inc()
	}
	if !kept {
		k.mu.Unlock()
		return
	}
	all, left := append([]sdk.ReadOnlySpan{s}, o.spans...), o.left
	k.mu.Unlock()
	made := traceOf(all, over, left)
	k.mu.Lock()
	k.kept = append(k.kept, made)
	k.kept = slices.Delete(k.kept, 0, max(0, len(k.kept)-k.config.Keep))
	k.mu.Unlock()
	if k.onward != nil {
		for _, s := range all {
			k.onward.OnEnd(s)
		}
	}
}

func overOf(s sdk.ReadOnlySpan) string {
	for _, a := range s.Attributes() {
		if a.Key == overAttribute {
			return a.Value.AsString()
		}
	}
	return ""
}

// traceOf makes a Trace of its spans, the first of which is the root.
func traceOf(all []sdk.ReadOnlySpan, over string, left uint64) *Trace {
	root := all[0]
	t := &Trace{
		ID: root.SpanContext().TraceID().String(), Name: root.Name(), Start: root.StartTime(),
		Seconds: root.EndTime().Sub(root.StartTime()).Seconds(), Over: over, Left: left,
	}
	for _, s := range all {
		span := Span{
			ID: s.SpanContext().SpanID().String(), Name: s.Name(), Error: s.Status().Description,
			Offset: s.StartTime().Sub(root.StartTime()).Seconds(), Seconds: s.EndTime().Sub(s.StartTime()).Seconds(),
		}
		if s.Parent().HasSpanID() {
			span.Parent = s.Parent().SpanID().String()
		}
		for _, a := range s.Attributes() {
			if span.Attributes == nil {
				span.Attributes = map[string]any{}
			}
			span.Attributes[string(a.Key)] = a.Value.AsInterface()
		}
		t.Spans = append(t.Spans, span)
	}
	slices.SortStableFunc(t.Spans[1:], func(a, b Span) int { return cmp.Compare(a.Offset, b.Offset) })
	return t
}

// Traces returns the kept traces, newest first.
func (t *Tracing) Traces() []*Trace {
	k := t.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	all := slices.Clone(k.kept)
	slices.Reverse(all)
	return all
}

// has reports whether the trace with this ID is kept.
func (k *keeper) has(id trace.TraceID) bool {
	text := id.String()
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.kept, func(t *Trace) bool { return t.ID == text })
}

// Shutdown is part of sdk.SpanProcessor.
func (k *keeper) Shutdown(ctx context.Context) error {
	if k.onward == nil {
		return nil
	}
	return k.onward.Shutdown(ctx)
}

// ForceFlush is part of sdk.SpanProcessor.
func (k *keeper) ForceFlush(ctx context.Context) error {
	if k.onward == nil {
		return nil
	}
	return k.onward.ForceFlush(ctx)
}
