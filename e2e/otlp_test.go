package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
)

// exporters are the exporters of OpenTelemetry's Go SDK, by the name of the service that uses each.
var exporters = map[string]func(t *testing.T, p *process, delta bool) sdk.Exporter{
	"http":      httpExporter(otlpmetrichttp.WithCompression(otlpmetrichttp.NoCompression)),
	"http-gzip": httpExporter(otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression)),
	"http-api":  httpExporter(otlpmetrichttp.WithURLPath("/api/v1/otlp/v1/metrics")),
	"grpc":      grpcExporter(),
	"grpc-gzip": grpcExporter(otlpmetricgrpc.WithCompressor("gzip")),
}

func httpExporter(more ...otlpmetrichttp.Option) func(*testing.T, *process, bool) sdk.Exporter {
	return func(t *testing.T, p *process, delta bool) sdk.Exporter {
		e, err := otlpmetrichttp.New(t.Context(), append([]otlpmetrichttp.Option{
			otlpmetrichttp.WithEndpoint(p.HTTP), otlpmetrichttp.WithInsecure(),
			otlpmetrichttp.WithTemporalitySelector(temporality(delta)),
		}, more...)...)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

func grpcExporter(more ...otlpmetricgrpc.Option) func(*testing.T, *process, bool) sdk.Exporter {
	return func(t *testing.T, p *process, delta bool) sdk.Exporter {
		e, err := otlpmetricgrpc.New(t.Context(), append([]otlpmetricgrpc.Option{
			otlpmetricgrpc.WithEndpoint(p.OTLPGRPC), otlpmetricgrpc.WithInsecure(),
			otlpmetricgrpc.WithTemporalitySelector(temporality(delta)),
		}, more...)...)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

func temporality(delta bool) sdk.TemporalitySelector {
	if delta {
		return sdk.DeltaTemporalitySelector
	}
	return sdk.CumulativeTemporalitySelector
}

// service returns the meter and the provider of a program that uses the SDK.
func service(name string, e sdk.Exporter) (metric.Meter, *sdk.MeterProvider) {
	provider := sdk.NewMeterProvider(
		sdk.WithReader(sdk.NewPeriodicReader(e, sdk.WithInterval(time.Hour))), // so long that it sends only at shutdown
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", name),
			attribute.String("service.instance.id", "i-1"), attribute.String("os.type", "linux"))),
		sdk.WithView(sdk.NewView(sdk.Instrument{Name: "payload.size"},
			sdk.Stream{Aggregation: sdk.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}})),
	)
	return provider.Meter("e2e"), provider
}

// TestOTLP checks that queries return every value that OpenTelemetry's SDKs for Go and Python send,
// for every kind of metric and by every protocol that they have.
func TestOTLP(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	for name, exporter := range exporters {
		t.Run(name, func(t *testing.T) {
			meter, provider := service(name, exporter(t, p, false))
			began := time.Now()
			recordAll(t, meter)
			reach(began.Add(10 * time.Millisecond))                // a counter's zero comes before its first value
			if err := provider.Shutdown(t.Context()); err != nil { // Shutdown sends
				t.Fatal(err)
			}
			checkRecorded(t, p, name)
		})
	}
	services := slices.Collect(maps.Keys(exporters))
	for protocol, endpoint := range map[string]string{"http": p.HTTP, "grpc": p.OTLPGRPC} {
		name := "python-" + protocol
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), "../.cache/venv/bin/python", "clients/python/otlp.py", protocol,
				endpoint, name).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Fatalf("the Python client failed (`make test` installs it): %v\n%s", err, out)
			}
			checkRecorded(t, p, name)
		})
		services = append(services, name)
	}
	p.terminate(t)
	p = start(t, p.dataDir)
	for _, name := range services {
		t.Run(name+" after a restart", func(t *testing.T) { checkRecorded(t, p, name) })
	}
}

const traceID, spanID = "0102030405060708090a0b0c0d0e0f10", "0102030405060708"

// recordAll records the values that checkRecorded expects.
func recordAll(t *testing.T, meter metric.Meter) {
	t.Helper()
	var errs []error
	traced := func() context.Context { // only measurements in a sampled trace have exemplars
		tid, err := trace.TraceIDFromHex(traceID)
		errs = append(errs, err)
		sid, err := trace.SpanIDFromHex(spanID)
		errs = append(errs, err)
		return trace.ContextWithSpanContext(t.Context(),
			trace.NewSpanContext(trace.SpanContextConfig{TraceID: tid, SpanID: sid, TraceFlags: trace.FlagsSampled}))
	}()
	requests, err := meter.Int64Counter("http.requests", metric.WithDescription("Requests."))
	errs = append(errs, err)
	for range 7 {
		requests.Add(traced, 3, metric.WithAttributes(attribute.String("http.method", "GET")))
	}
	bytes, err := meter.Float64Counter("sent", metric.WithUnit("By"))
	errs = append(errs, err)
	bytes.Add(t.Context(), 0.1)
	bytes.Add(t.Context(), 0.2)
	open, err := meter.Int64UpDownCounter("open")
	errs = append(errs, err)
	open.Add(t.Context(), 5)
	open.Add(t.Context(), -7)
	temperature, err := meter.Float64Gauge("temperature", metric.WithUnit("Cel"))
	errs = append(errs, err)
	temperature.Record(t.Context(), 21.375)
	_, err = meter.Int64ObservableGauge("threads",
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error { o.Observe(12); return nil }))
	errs = append(errs, err)
	latency, err := meter.Float64Histogram("latency",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(0.1, 1, 10))
	errs = append(errs, err)
	for _, v := range []float64{0.05, 0.5, 0.75, 5, 50} {
		latency.Record(traced, v)
	}
	size, err := meter.Int64Histogram("payload.size", metric.WithUnit("By"))
	errs = append(errs, err)
	for _, v := range []int64{1, 2, 4, 1 << 20, 0} {
		size.Record(t.Context(), v)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func checkRecorded(t *testing.T, p *process, job string) {
	t.Helper()
	for expr, want := range map[string]float64{
		`http_requests_total{%s,http_method="GET"}`:                                   21,
		`min_over_time(http_requests_total{%s}[1h])`:                                  0, // the zero at its start
		`count_over_time(http_requests_total{%s}[1h])`:                                2,
		`sent_bytes_total{%s}`:                                                        0.1 + float64(0.2),
		`open{%s}`:                                                                    -2,
		`temperature_celsius{%s}`:                                                     21.375,
		`count_over_time(temperature_celsius{%s}[1h])`:                                1, // a gauge has no zero at its start
		`threads{%s}`:                                                                 12,
		`latency_seconds_count{%s}`:                                                   5,
		`latency_seconds_sum{%s}`:                                                     56.3,
		`latency_seconds_bucket{%s,le="0.1"}`:                                         1,
		`latency_seconds_bucket{%s,le="1"}`:                                           3,
		`latency_seconds_bucket{%s,le="10"}`:                                          4,
		`latency_seconds_bucket{%s,le="+Inf"}`:                                        5,
		`histogram_count(payload_size_bytes{%s})`:                                     5,
		`histogram_sum(payload_size_bytes{%s})`:                                       1<<20 + 7,
		`histogram_fraction(-Inf, 0.5, payload_size_bytes{%s})`:                       0.2, // the recorded 0
		`http_requests_total{%s} * on(job, instance) group_left(os_type) target_info`: 21,
		`target_info{%s,os_type="linux"}`:                                             1,
	} {
		expr = fmt.Sprintf(expr, fmt.Sprintf("job=%q", job))
		if got, err := p.value(expr); err != nil || got != want {
			t.Errorf("%s = %v, want %v (%v)", expr, got, want, err)
		}
	}
	var found []struct {
		Labels    map[string]string `json:"seriesLabels"`
		Exemplars []struct {
			Labels map[string]string `json:"labels"`
			Value  string            `json:"value"`
		} `json:"exemplars"`
	}
	params := url.Values{
		"query": {fmt.Sprintf(`latency_seconds_bucket{job=%q,le="10"}`, job)},
		"start": {fmt.Sprint(time.Now().Add(-time.Hour).Unix())}, "end": {fmt.Sprint(time.Now().Add(time.Minute).Unix())},
	}
	if err := p.ask("/api/v1/query_exemplars", params, &found); err != nil {
		t.Error(err)
	}
	if len(found) != 1 || len(found[0].Exemplars) != 1 || found[0].Exemplars[0].Value != "5" ||
		!reflect.DeepEqual(found[0].Exemplars[0].Labels, map[string]string{"trace_id": traceID, "span_id": spanID}) {
		t.Errorf("unexpected exemplars: %+v", found)
	}
}

// TestDeltaOverOTLP checks that the totals of an SDK that sends deltas are right, and continue when
// the SDK's program restarts and when the server is stopped or killed.
func TestDeltaOverOTLP(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	names := []string{"http", "grpc"}
	for round := 1.0; round <= 3; round++ {
		for _, name := range names {
			// This is a new program, as after a restart of the service.
			meter, provider := service(name, exporters[name](t, p, true))
			recordAll(t, meter)
			if err := provider.Shutdown(t.Context()); err != nil { // Shutdown sends
				t.Fatalf("round %v, %s: %v", round, name, err)
			}
			eventually(t, 30*time.Second, "the totals are right", func() error { return p.checkAdded(name, round) })
		}
		switch round {
		case 1:
			p.kill(t)
			p = start(t, p.dataDir)
		case 2:
			p.terminate(t)
			p = start(t, p.dataDir)
		}
		for _, name := range names { // check the totals before the next round adds to them
			eventually(t, 30*time.Second, "the totals are right after a restart", func() error {
				return p.checkAdded(name, round)
			})
		}
	}
}

// checkAdded expects the values of recordAll after some rounds.
func (p *process) checkAdded(job string, rounds float64) error {
	for expr, want := range map[string]float64{
		`http_requests_total{%s,http_method="GET"}`:             21 * rounds,
		`sent_bytes_total{%s}`:                                  0.3 * rounds,
		`open{%s}`:                                              -2, // up/down counters stay cumulative
		`temperature_celsius{%s}`:                               21.375,
		`latency_seconds_count{%s}`:                             5 * rounds,
		`latency_seconds_sum{%s}`:                               56.3 * rounds,
		`latency_seconds_bucket{%s,le="0.1"}`:                   1 * rounds,
		`latency_seconds_bucket{%s,le="10"}`:                    4 * rounds,
		`latency_seconds_bucket{%s,le="+Inf"}`:                  5 * rounds,
		`histogram_count(payload_size_bytes{%s})`:               5 * rounds,
		`histogram_sum(payload_size_bytes{%s})`:                 (1<<20 + 7) * rounds,
		`histogram_fraction(-Inf, 0.5, payload_size_bytes{%s})`: 0.2, // the recorded 0
		`http_requests_total{%s} * on(job, instance) group_left(os_type) target_info`: 21 * rounds,
	} {
		if err := p.expect(fmt.Sprintf(expr, fmt.Sprintf("job=%q", job)), want, 1e-9); err != nil {
			return err
		}
	}
	return nil
}

// TestARepeatOfDelta checks that a request of deltas counts once if it is sent again, as after a
// lost answer, and that the repeats are in the books.
func TestARepeatOfDelta(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	body := fmt.Sprintf(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
		{"name":"hits","sum":{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{"asInt":"5","timeUnixNano":"%[1]d"}]}},
		{"name":"level","sum":{"aggregationTemporality":1,"dataPoints":[{"asInt":"-5","timeUnixNano":"%[1]d"}]}}]}]}]}`, time.Now().UnixNano())
	for round := range 3 {
		answer, err := http.Post("http://"+p.HTTP+"/v1/metrics", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || string(text) != "{}" {
			t.Fatalf("the answer is %s %s, want 200 and {}; error %v", answer.Status, text, err)
		}
		eventually(t, 30*time.Second, "the totals are right", func() error {
			return errors.Join(p.expect("hits_total", 5, 0), p.expect("level", -5, 0))
		})
		if n, err := p.ownMetric("freshet_aggregator_repeated_samples_total"); err != nil || n != float64(2*round) {
			t.Errorf("round %d: the metric has %v repeats, want %d; error %v", round, n, 2*round, err)
		}
	}
	books, _, err := p.ledger()
	if err != nil || books.Samples.Refused["repeated"] != 4 || books.Samples.Received != 6 ||
		books.Samples.Difference != 0 {
		t.Errorf("the books have %+v, error %v; want 6 samples received, 4 of them refused as repeated", books, err)
	}
}

// An empty address turns OTLP over gRPC off. Otherwise the server prints the address at the start,
// and keeps it in a restart in place: requests that come during the restart wait, and are answered
// afterwards.
func TestOTLPAddress(t *testing.T) {
	p := start(t, dataDir(t), "--otlp-grpc-listen", "")
	if p.OTLPGRPC != "" || strings.Contains(p.output.String(), "OTLP") {
		t.Errorf("with an empty address the server listens on %q:\n%s", p.OTLPGRPC, p.output)
	}
	p.terminate(t)
	p = start(t, p.dataDir)
	if !strings.Contains(p.output.String(), "  OTLP       grpc      "+p.OTLPGRPC) {
		t.Errorf("the address %q is not printed:\n%s", p.OTLPGRPC, p.output)
	}
	meter, provider := service("across", exporters["grpc"](t, p, false))
	recordAll(t, meter)
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for err := error(nil); ; {
			select {
			case <-stop:
				sent <- err
				return
			default:
				err = errors.Join(err, provider.ForceFlush(t.Context()))
			}
		}
	}()
	if r, said, err := p.restart(t); err != nil || r.State != "ready" {
		t.Errorf("the restart in place failed: %v: %+v\n%s", err, r, said)
	}
	close(stop)
	if err := <-sent; err != nil {
		t.Errorf("sending during a restart failed: %v", err)
	}
	if got, err := p.value(`http_requests_total{job="across"}`); err != nil || got != 21 {
		t.Errorf("the counter is %v, want 21; error %v", got, err)
	}
}
