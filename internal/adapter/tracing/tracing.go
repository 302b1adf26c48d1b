// Package tracing keeps traces of slow work: batches that exceeded the budget of a stage, and
// queries. The latest traces are in memory, where they can be read without another system. All
// kept traces may also be sent on by OTLP.
//
// Tracing costs nothing for a batch that is not slow: spans of slow batches are made afterwards,
// from the times in core/stage. A query is traced while it runs, by Prometheus' engine.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

const (
	// waiting limits how many slow batches may wait for their spans.
	waiting = 64

	// perSecond bounds the number of traces kept in one second: when everything is slow, a few
	// traces show the cause as well as all traces would.
	perSecond = 10
)

// Tracing keeps traces while Run runs.
type Tracing struct {
	watch    *stage.Watch
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	keeper   *keeper
	slow     chan slowTrip
	metrics  *metrics
}

type slowTrip struct {
	trip  *stage.Trip
	stage stage.Stage
	spent time.Duration
}

// New makes a Tracing and installs it for Prometheus' engine, so make only one in a process.
// `version` is the version of the program.
func New(c Config, version string, watch *stage.Watch, reg prometheus.Registerer,
	logger *slog.Logger) (*Tracing, error) {
	m := newMetrics(reg)
	t := &Tracing{watch: watch, keeper: newKeeper(c, m), slow: make(chan slowTrip, waiting), metrics: m}
	options := []sdk.TracerProviderOption{
		sdk.WithSampler(sdk.AlwaysSample()), // even if the sender does not sample its own spans
		sdk.WithSpanProcessor(t.keeper),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "freshet"),
			attribute.String("service.version", version))),
	}
	if c.Endpoint != "" {
		// The exporter connects only when it sends.
		exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(c.Endpoint))
		if err != nil {
			return nil, fmt.Errorf("self.traces.endpoint: %w", err)
		}
		t.keeper.onward = newOnward(exporter, m)
	}
	t.provider = sdk.NewTracerProvider(options...)
	t.tracer = t.provider.Tracer("github.com/freshet-io/freshet")
	otel.SetTracerProvider(pruned{TracerProvider: t.provider})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.Warn("traces cannot be sent to self.traces.endpoint",
			"endpoint", conf.ShowURL(c.Endpoint), "error", withoutURL(err))
	}))
	return t, nil
}

// pruned makes no spans below a span of this process that is not sampled. The sampler could leave them out, too, but
// each would still cost an ID and an allocation.
type pruned struct{ trace.TracerProvider }

// Tracer implements trace.TracerProvider.
func (p pruned) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return prunedTracer{p.TracerProvider.Tracer(name, options...)}
}

type prunedTracer struct{ trace.Tracer }

// Start implements trace.Tracer.
func (t prunedTracer) Start(
	ctx context.Context, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	at := trace.SpanContextFromContext(ctx)
	if at.IsValid() && !at.IsSampled() && !at.IsRemote() {
		if c := trace.NewSpanStartConfig(options...); c.NewRoot() {
			return t.Tracer.Start(ctx, name, options...)
		}
		return ctx, trace.SpanFromContext(ctx)
	}
	return t.Tracer.Start(ctx, name, options...)
}

// withoutURL returns a client's error without the URL in front, which may contain a password.
func withoutURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// stopTime is how long Run, at its end, waits for the endpoint to take the last spans.
const stopTime = 3 * time.Second

// Run makes spans of slow batches until ctx is done, and then sends the spans that still wait.
func (t *Tracing) Run(ctx context.Context) error {
	for {
		select {
		case slow := <-t.slow:
			t.record(slow)
		case <-ctx.Done():
			for len(t.slow) > 0 {
				t.record(<-t.slow)
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
			defer cancel()
			if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("send the last traces: %w", err)
			}
			return nil
		}
	}
}

// Slow keeps an ended trip that exceeded the budget of stage s. It never waits: if there is no
// room, Slow only counts the trip.
func (t *Tracing) Slow(trip *stage.Trip, s stage.Stage, spent time.Duration) {
	select {
	case t.slow <- slowTrip{trip, s, spent}:
	default:
		t.metrics.skipped.Inc()
	}
}

// record makes the spans of a trip.
func (t *Tracing) record(slow slowTrip) {
	trip := slow.trip
	ctx := context.Background()
	if trip.Parent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": trip.Parent})
	}
	ctx, root := t.tracer.Start(ctx, trip.Input.String(), trace.WithTimestamp(trip.Born),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("freshet.tenant", trip.Tenant), attribute.Int("freshet.samples", trip.Samples),
			attribute.String(overAttribute, slow.stage.String()),
			attribute.Float64("freshet.over_seconds", slow.spent.Seconds()),
		))
	for s := range stage.NumStages {
		entered, left, passed := trip.Passed(s)
		if !passed || s == stage.Visible { // Visible's span is the root
			continue
		}
		_, span := t.tracer.Start(ctx, s.String(), trace.WithTimestamp(trip.Born.Add(entered)))
		span.End(trace.WithTimestamp(trip.Born.Add(left)))
	}
	root.End(trace.WithTimestamp(trip.Born.Add(trip.Took())))
	if id := root.SpanContext().TraceID(); t.keeper.has(id) {
		t.watch.Exemplify(trip, id.String())
	}
}

// overAttribute is an attribute of a root span: the stage that exceeded its budget. keeper keeps a trace
// with this attribute, however short the trace is.
const overAttribute = "freshet.over"
