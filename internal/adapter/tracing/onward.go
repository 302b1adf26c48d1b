package tracing

import (
	"context"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// maxWaiting bounds the spans that wait for an endpoint that is down or slow. That many spans make about
// a hundred large traces. A span takes about 1 kB.
const maxWaiting = 20_000

// onward sends the spans of kept traces to self.traces.endpoint, in batches. Each span ends as
// sent or unsent.
type onward struct {
	sdk.SpanProcessor
	metrics *metrics
	waiting atomic.Int64
}

func newOnward(exporter sdk.SpanExporter, m *metrics) *onward {
	o := &onward{metrics: m}
	o.SpanProcessor = sdk.NewBatchSpanProcessor(counting{exporter, o}, sdk.WithMaxQueueSize(maxWaiting))
	return o
}

// OnEnd implements sdk.SpanProcessor. It drops and counts spans beyond maxWaiting. Otherwise the
// processor would drop them silently.
func (o *onward) OnEnd(s sdk.ReadOnlySpan) {
	if o.waiting.Add(1) > maxWaiting {
		o.waiting.Add(-1)
		o.metrics.unsent.Inc()
		return
	}
	o.SpanProcessor.OnEnd(s)
}

// counting is an exporter that counts the sent and the unsent spans of `onward`.
type counting struct {
	sdk.SpanExporter
	onward *onward
}

func (c counting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	c.onward.waiting.Add(-int64(len(spans)))
	if err == nil {
		c.onward.metrics.sent.Add(float64(len(spans)))
	} else {
		c.onward.metrics.unsent.Add(float64(len(spans)))
	}
	return err
}
