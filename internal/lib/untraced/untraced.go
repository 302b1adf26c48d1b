// Package untraced is for work that is too frequent to be traced. Its spans would cost more than they tell.
package untraced

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

var parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})

// NewContext returns a context with a span that is not sampled. adapter/tracing makes no spans below it, unless one
// begins a trace of its own.
func NewContext(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, parent)
}
