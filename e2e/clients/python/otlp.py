"""Records what recordAll in otlp_test.go does, by OpenTelemetry's SDK, and sends it:
otlp.py http|grpc ENDPOINT SERVICE."""

import sys
import time

from opentelemetry import trace
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags


def exporter(protocol, endpoint):
    if protocol == "http":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import Compression, OTLPMetricExporter

        return OTLPMetricExporter(endpoint="http://" + endpoint + "/v1/metrics", compression=Compression.Gzip)
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(endpoint=endpoint, insecure=True)


def record(meter, traced):
    requests = meter.create_counter("http.requests", description="Requests.")
    for _ in range(7):
        requests.add(3, {"http.method": "GET"}, context=traced)
    sent = meter.create_counter("sent", unit="By")
    sent.add(0.1)
    sent.add(0.2)
    opened = meter.create_up_down_counter("open")
    opened.add(5)
    opened.add(-7)
    meter.create_gauge("temperature", unit="Cel").set(21.375)
    meter.create_observable_gauge("threads", [lambda options: [Observation(12)]])
    latency = meter.create_histogram("latency", unit="s", explicit_bucket_boundaries_advisory=[0.1, 1, 10])
    for v in (0.05, 0.5, 0.75, 5, 50):
        latency.record(v, context=traced)
    size = meter.create_histogram("payload.size", unit="By")
    for v in (1, 2, 4, 1 << 20, 0):
        size.record(v)


def main():
    protocol, endpoint, service = sys.argv[1:]
    span = SpanContext(
        int("0102030405060708090a0b0c0d0e0f10", 16), int("0102030405060708", 16), False, TraceFlags(TraceFlags.SAMPLED)
    )
    provider = MeterProvider(
        [PeriodicExportingMetricReader(exporter(protocol, endpoint), export_interval_millis=3_600_000)],
        resource=Resource({"service.name": service, "service.instance.id": "i-1", "os.type": "linux"}),
        views=[View(instrument_name="payload.size", aggregation=ExponentialBucketHistogramAggregation())],
    )
    record(provider.get_meter("e2e"), trace.set_span_in_context(NonRecordingSpan(span)))
    time.sleep(0.01)  # a counter's zero comes before its first value
    provider.shutdown()  # shutdown sends


main()
