package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/freshet-io/freshet/internal/core/stage"
)

func newTracing(t *testing.T, c Config) (*Tracing, *stage.Watch) {
	t.Helper()
	w := stage.NewWatch()
	tr, err := New(c, "v1", w, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tr, w
}

// slow returns an ended trip of a request that waited in the queue.
func slow(w *stage.Watch, born time.Time, parent string) *stage.Trip {
	trip := &stage.Trip{Input: stage.RemoteWrite, Tenant: "team", Samples: 7, Born: born, Parent: parent}
	at := func(ms int) time.Time { return born.Add(time.Duration(ms) * time.Millisecond) }
	trip.Enter(stage.Read, at(0))
	trip.Pass(stage.Read, stage.Queue, at(1))
	trip.Pass(stage.Queue, stage.Append, at(301))
	trip.Leave(stage.Append, at(311))
	trip.Seen(at(311))
	w.End(trip)
	return trip
}

const (
	parentTrace = "0102030405060708090a0b0c0d0e0f10"
	parentSpan  = "0102030405060708"
)

// draw returns a trace as text: names, offsets and lengths in ms.
func draw(t *Trace) string {
	var b strings.Builder
	for _, s := range t.Spans {
		fmt.Fprintf(&b, "%s %.0f+%.0f\n", s.Name, s.Offset*1e3, s.Seconds*1e3)
	}
	return b.String()
}

func TestASlowBatchIsATrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, w := newTracing(t, DefaultConfig())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tr.Run(ctx) }()
		// The sender's decision not to sample applies only to its own spans.
		tr.Slow(slow(w, time.Now(), "00-"+parentTrace+"-"+parentSpan+"-00"), stage.Queue, 300*time.Millisecond)
		synctest.Wait()
		all := tr.Traces()
		if len(all) != 1 {
			t.Fatalf("%d traces", len(all))
		}
		got := all[0]
		if want := "remote_write 0+311\nread 0+1\nqueue 1+300\nappend 301+10\n"; draw(got) != want {
			t.Errorf("got\n%swant\n%s", draw(got), want)
		}
		if got.ID != parentTrace || got.Over != "queue" || got.Spans[0].Parent != parentSpan ||
			got.Spans[1].Parent != got.Spans[0].ID {
			t.Errorf("%+v", got)
		}
		if a := got.Spans[0].Attributes; a["freshet.tenant"] != "team" || a["freshet.samples"] != int64(7) {
			t.Errorf("%v", a)
		}
		// The exemplars of the stage histograms have the id of the trace.
		for _, s := range w.Stats() {
			if s.Spent.Exemplar == nil || s.Spent.Exemplar.Trace != got.ID {
				t.Errorf("stage %v has the exemplar %+v", s.Stage, s.Spent.Exemplar)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestOnlySlowQueriesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _ := newTracing(t, Config{Keep: 2, Query: time.Second})
		query := func(name string, took time.Duration) {
			ctx, span := otel.Tracer("").Start(t.Context(), name) // as the engine does
			_, part := otel.Tracer("").Start(ctx, "part of "+name)
			time.Sleep(took)
			part.End()
			span.End()
		}
		query("quick", time.Second)
		for _, name := range []string{"first", "second", "third"} {
			query(name, 2*time.Second)
		}
		all := tr.Traces()
		if len(all) != 2 || all[0].Name != "third" || all[1].Name != "second" {
			t.Fatalf("%+v", all)
		}
		if want := "third 0+2000\npart of third 0+2000\n"; draw(all[0]) != want {
			t.Errorf("%s", draw(all[0]))
		}
		if n := len(tr.keeper.open); n != 0 {
			t.Errorf("%d traces stay open", n)
		}
	})
}

// The panels of a dashboard may send queries at the same time, in one trace of their sender.
func TestQueriesOfOneTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _ := newTracing(t, DefaultConfig())
		parent := propagation.TraceContext{}.Extract(t.Context(),
			propagation.MapCarrier{"traceparent": "00-" + parentTrace + "-" + parentSpan + "-01"})
		a, rootA := tr.tracer.Start(parent, "A")
		b, rootB := tr.tracer.Start(parent, "B")
		_, partB := tr.tracer.Start(b, "part of B")
		_, partA := tr.tracer.Start(a, "part of A")
		time.Sleep(2 * time.Second)
		for _, s := range []trace.Span{partB, partA, rootA, rootB} {
			s.End()
		}
		all := tr.Traces()
		if len(all) != 2 || draw(all[0]) != "B 0+2000\npart of B 0+2000\n" || draw(all[1]) != "A 0+2000\npart of A 0+2000\n" {
			t.Errorf("%+v", all)
		}
		if n := len(tr.keeper.open); n != 0 {
			t.Errorf("%d spans stay open", n)
		}
	})
}

// When all work is slow, tracing must keep only a few traces, so that it does not slow
// the work down further.
func TestTracesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, w := newTracing(t, DefaultConfig())
		for range 100 {
			tr.Slow(slow(w, time.Now(), ""), stage.Queue, time.Second) // Run has not started, so most trips have no room
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tr.Run(ctx) }()
		synctest.Wait()
		stop()
		<-ended
		if n := len(tr.Traces()); n != perSecond {
			t.Errorf("%d traces are kept in a second, want %d", n, perSecond)
		}
		if kept, skipped := testutil.ToFloat64(tr.metrics.kept),
			testutil.ToFloat64(tr.metrics.skipped); kept != perSecond || skipped != 100-perSecond {
			t.Errorf("%v traces kept, want %d; %v skipped, want %d", kept, perSecond, skipped, 100-perSecond)
		}
	})
}

func TestAQueryOfManyParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _ := newTracing(t, DefaultConfig())
		ctx, root := tr.tracer.Start(t.Context(), "query")
		time.Sleep(2 * time.Second)
		for range maxSpans + 50 {
			_, s := tr.tracer.Start(ctx, "part")
			s.End()
		}
		root.End()
		if all := tr.Traces(); len(all) != 1 || len(all[0].Spans) != maxSpans+1 || all[0].Left != 50 {
			t.Errorf("got %d traces, want one with 50 spans left out: %+v", len(all), all)
		}
	})
}

// A span that is not sampled has no spans below it. The senders of requests decide only about their own.
func TestPartsThatAreNotTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _ := newTracing(t, DefaultConfig())
		sent := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true,
		})
		ctx, root := otel.Tracer("").Start(trace.ContextWithSpanContext(t.Context(), sent), "rule")
		below := trace.ContextWithSpanContext(ctx, trace.SpanContextFromContext(ctx).WithTraceFlags(0))
		_, own := otel.Tracer("").Start(below, "trace of its own", trace.WithNewRoot())
		below, part := otel.Tracer("").Start(below, "part")
		_, smaller := otel.Tracer("").Start(below, "smaller part")
		time.Sleep(2 * time.Second)
		smaller.End()
		part.End()
		own.End()
		root.End()
		all := tr.Traces()
		if len(all) != 2 || draw(all[0]) != "rule 0+2000\n" || draw(all[1]) != "trace of its own 0+2000\n" {
			t.Errorf("got %+v, want the rule alone, and what begins a trace", all)
		}
	})
}

// The endpoint gets only the kept traces.
func TestTracesAreSentOn(t *testing.T) {
	received := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := ptraceotlp.NewExportRequest()
		if err == nil {
			err = request.UnmarshalProto(body)
		}
		if err != nil {
			t.Error(err)
			return
		}
		spans := request.Traces().ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		name, _ := request.Traces().ResourceSpans().At(0).Resource().Attributes().Get("service.name")
		text := r.URL.Path + " " + name.Str()
		for i := range spans.Len() {
			text += " " + spans.At(i).Name()
		}
		received <- text
	}))
	defer receiver.Close()
	tr, w := newTracing(t, Config{Keep: 10, Query: time.Second, Endpoint: receiver.URL + "/v1/traces"})
	_, quick := otel.Tracer("").Start(t.Context(), "quick")
	quick.End()
	tr.record(slowTrip{slow(w, time.Now(), ""), stage.Queue, time.Second})
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := tr.Run(ended); err != nil { // sends the rest
		t.Error(err)
	}
	if got := <-received; got != "/v1/traces freshet remote_write read queue append" {
		t.Error(got)
	}
	select {
	case more := <-received:
		t.Error(more)
	default:
	}
	if sent, unsent := testutil.ToFloat64(tr.metrics.sent),
		testutil.ToFloat64(tr.metrics.unsent); sent != 4 || unsent != 0 {
		t.Errorf("%v spans were sent, want 4; %v were unsent, want 0", sent, unsent)
	}
}

// Traces of work that was slow just before the end are sent as well.
func TestTheLastTracesAreSentOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, w := newTracing(t, DefaultConfig())
		for range 3 {
			tr.Slow(slow(w, time.Now(), ""), stage.Queue, time.Second)
		}
		ended, stop := context.WithCancel(t.Context())
		stop()
		if err := tr.Run(ended); err != nil {
			t.Error(err)
		}
		if n := len(tr.Traces()); n != 3 {
			t.Errorf("%d of 3", n)
		}
	})
}

// stuck is an endpoint that blocks until the test gives it its answer.
type stuck struct {
	sdk.SpanExporter
	answer chan error
}

func (s stuck) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	select {
	case err := <-s.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (stuck) Shutdown(context.Context) error { return nil }

// With a slow or dead endpoint, memory stays bounded and each span is counted.
func TestSpansThatNobodyTakesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(prometheus.NewRegistry())
		endpoint := stuck{answer: make(chan error)}
		o := newOnward(endpoint, m)
		provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(o))
		const spans = maxWaiting + 1000
		for range spans {
			_, s := provider.Tracer("").Start(t.Context(), "a")
			s.End()
		}
		if n := testutil.ToFloat64(m.unsent); n != 1000 {
			t.Errorf("%v spans were turned away, want 1000", n)
		}
		synctest.Wait()
		endpoint.answer <- nil
		endpoint.answer <- errors.New("refused")
		close(endpoint.answer) // the endpoint then accepts the rest
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		sent, unsent := testutil.ToFloat64(m.sent), testutil.ToFloat64(m.unsent)
		if sent+unsent != spans || unsent <= 1000 || unsent > 2000 || o.waiting.Load() != 0 {
			t.Errorf(
				"of the spans, %v were sent, %v unsent, want %d in total; %d still wait", sent, unsent, spans, o.waiting.Load())
		}
	})
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		config Config
		wrong  string // key
	}{
		{DefaultConfig(), ""},
		{Config{Keep: 0, Query: 1}, "keep"},
		{Config{Keep: 1, Query: 0}, "query"},
		{Config{Keep: 1, Query: 1, Endpoint: "127.0.0.1:4318"}, "endpoint"},
		{Config{Keep: 1, Query: 1, Endpoint: "https://collector:4318/v1/traces"}, ""},
	} {
		problems := c.config.Validate()
		if len(problems) == 0 != (c.wrong == "") || len(problems) > 0 && problems[0].Key != c.wrong {
			t.Errorf("%+v: %v", c.config, problems)
		}
	}
}
