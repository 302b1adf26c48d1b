package receive

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // registers the compression that clients use
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/outcome"
)

var escaping = otlp.Settings{Strategy: otlptranslator.UnderscoreEscapingWithSuffixes}

// otlpRequest returns a request with a cumulative sum, and one more sum for each given temporality.
func otlpRequest(points int, others ...pmetric.AggregationTemporality) pmetricotlp.ExportRequest {
	m := pmetric.NewMetrics()
	all := m.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	add := func(name string, t pmetric.AggregationTemporality) {
		s := all.AppendEmpty()
		s.SetName(name)
		s.SetEmptySum().SetAggregationTemporality(t)
		for i := range points {
			p := s.Sum().DataPoints().AppendEmpty()
			p.SetIntValue(int64(i))
			p.SetTimestamp(1_790_000_000_000_000_000)
			p.Attributes().PutInt("i", int64(i))
		}
	}
	if points > 0 {
		add("sum", pmetric.AggregationTemporalityCumulative)
	}
	for _, t := range others {
		add("other", t)
	}
	return pmetricotlp.NewExportRequestFromMetrics(m)
}

func must(t *testing.T, encode func() ([]byte, error)) []byte {
	t.Helper()
	b, err := encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func zip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func postOTLP(r *Receiver, contentType, encoding string, body io.Reader) *httptest.ResponseRecorder {
	request := httptest.NewRequest("POST", "/v1/metrics", body)
	for name, value := range map[string]string{"Content-Type": contentType, "Content-Encoding": encoding} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	r.OTLP(w, request)
	return w
}

// told decodes an answer in any form. It returns the number of rejected points and the
// text of the partial success or of the status.
func told(t *testing.T, kind string, code int, body []byte) (rejected int64, text string) {
	t.Helper()
	answer := pmetricotlp.NewExportResponse()
	var s status.Status
	decode := func() error { return answer.UnmarshalProto(body) }
	switch {
	case code != http.StatusOK && kind == protobuf:
		decode = func() error { return proto.Unmarshal(body, &s) }
	case code != http.StatusOK && kind == jsonType:
		decode = func() error { return protojson.Unmarshal(body, &s) }
	case code != http.StatusOK:
		return 0, string(body)
	case kind == jsonType:
		decode = func() error { return answer.UnmarshalJSON(body) }
	}
	if err := decode(); err != nil {
		t.Errorf("decode an answer of type %s, %q: %v", kind, body, err)
	}
	if code != http.StatusOK {
		return 0, fmt.Sprintf("code %d: %s", s.Code, s.Message)
	}
	return answer.PartialSuccess().RejectedDataPoints(), answer.PartialSuccess().ErrorMessage()
}

// Each kind of OTLP request has a known answer.
func TestOTLPAnswers(t *testing.T) {
	const js = "application/json; charset=utf-8"
	good, mixed, empty := otlpRequest(2), otlpRequest(2, pmetric.AggregationTemporalityUnspecified), otlpRequest(0)
	deltas, only := otlpRequest(2, pmetric.AggregationTemporalityDelta), otlpRequest(2)
	only.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().SetAggregationTemporality(
		pmetric.AggregationTemporalityDelta)
	wire, text := must(t, good.MarshalProto), must(t, good.MarshalJSON)
	var partly outcome.Outcome
	partly.Written.Samples = 1
	partly.Refuse(outcome.Duplicate, outcome.Counts{Samples: 1})
	partly.Tell("sum{}", errors.New("the cause"))
	full := partly // all samples are refused
	full.Refused[outcome.Duplicate].Samples = 2

	const written = "team v2=false {Samples:2 Histograms:0 Exemplars:0}"
	for _, c := range []struct {
		why            string
		kind, encoding string
		body           []byte
		d              distributor
		status         int
		rejected       int64
		text           string
		got, unread    string
		repeat         string // header
	}{
		{why: "protobuf", kind: protobuf, body: wire, status: 200, got: written},
		{why: "JSON", kind: js, body: text, status: 200, got: written},
		{why: "compressed", kind: protobuf, encoding: "gzip", body: zip(wire), status: 200, got: written},
		{why: "compressed JSON", kind: js, encoding: "gzip", body: zip(text), status: 200, got: written},
		{why: "the encoding identity", kind: protobuf, encoding: "identity", body: wire, status: 200, got: written},
		{why: "an empty request is a success", kind: protobuf, status: 200},
		{why: "empty JSON as well", kind: js, body: []byte("{}"), status: 200},
		{why: "a resource without points", kind: protobuf, body: must(t, empty.MarshalProto), status: 200},
		{why: "points without a temporality are rejected one by one", kind: protobuf, body: must(t, mixed.MarshalProto),
			status: 200, rejected: 2, text: "cumulative or delta", got: written},
		{why: "in JSON as well", kind: js, body: must(t, mixed.MarshalJSON), status: 200, rejected: 2, text: "(2 delta)",
			got: written},
		{why: "some samples are refused",
			kind: protobuf, body: wire, d: distributor{outcome: partly}, status: 200, rejected: 1,
			text: "1 duplicate", got: written},
		{why: "all samples are refused", kind: protobuf, body: wire, d: distributor{outcome: full}, status: 200, rejected: 2,
			text: "2 duplicate", got: written},
		{why: "a request over the rate is not read",
			kind: protobuf, body: []byte("never read"), d: distributor{admit: again{}},
			status: 503, text: "code 14: come again", repeat: "2"},
		{why: "the disk is full", kind: js, body: text, d: distributor{push: again{}}, status: 503,
			text: "code 14: come again", repeat: "2", got: written},
		{why: "deltas go to PushDeltas", kind: protobuf, body: must(t, deltas.MarshalProto), status: 200,
			got: written + "; added " + written},
		{why: "some deltas are refused", kind: protobuf, body: must(t, deltas.MarshalProto), d: distributor{added: partly},
			status: 200, rejected: 1, text: "1 duplicate", got: written + "; added " + written},
		{why: "delta alone", kind: js, body: must(t, only.MarshalJSON), d: distributor{pushDeltas: again{}}, status: 503,
			text: "code 14", repeat: "2", got: "added " + written},
		{why: "rejected points of a request that is retried are not counted yet", kind: protobuf,
			body: must(t, mixed.MarshalProto), d: distributor{push: again{}}, status: 503,
			text: "code 14", repeat: "2", got: written},
		{why: "another fault", kind: protobuf, body: wire, d: distributor{push: errors.New("broken")}, status: 500,
			text: "code 13: broken", got: written},
		{why: "another type", kind: "text/plain", body: wire, status: 415,
			text: "send application/x-protobuf or application/json", unread: "team content_type"},
		{why: "no content type", body: wire, status: 415, text: "send application/x-protobuf or application/json",
			unread: "team content_type"},
		{why: "another encoding", kind: protobuf, encoding: "zstd", body: wire, status: 415,
			text: "code 3: Content-Encoding", unread: "team content_type"},
		{why: "not protobuf", kind: protobuf, body: []byte("\x0a"), status: 400,
			text: "code 3: the body is not an ExportMetricsServiceRequest", unread: "team malformed"},
		{why: "not JSON", kind: js, body: []byte("{"), status: 400,
			text: "code 3: the body is not an ExportMetricsServiceRequest", unread: "team malformed"},
		{why: "not gzip", kind: protobuf, encoding: "gzip", body: wire, status: 400, text: "not compressed with gzip",
			unread: "team malformed"},
		{why: "gzip that ends too soon", kind: protobuf, encoding: "gzip", body: zip(wire)[:20], status: 400,
			text: "code 3: the body ended", unread: "team malformed"},
		{why: "a body that is too large before decompression", kind: protobuf, body: make([]byte, 10_001), status: 413,
			text: "code 8: the body has 10001 bytes", unread: "team too_large"},
		{why: "a gzip bomb", kind: protobuf, encoding: "gzip", body: zip(make([]byte, 8_000_000)), status: 413,
			text: "code 8: the body has 10001 bytes", unread: "team too_large"},
		{why: "metrics without points, which take memory", kind: protobuf, body: must(t, otlpRequest(0).MarshalProto),
			status: 200},
		{why: "messages of two bytes", kind: protobuf, body: bytes.Repeat([]byte{0x0a, 0}, 5000), status: 413,
			text: "distributor.max_memory", unread: "team too_large"},
		{why: "deeply nested values", kind: js, body: []byte(strings.Repeat("[", 1000)), status: 400, text: "too deep",
			unread: "team malformed"},
	} {
		for _, sized := range []bool{true, false} {
			d := c.d
			d.settings = escaping
			var body io.Reader = bytes.NewReader(c.body)
			if !sized {
				body = unsized{body}
			}
			r := newReceiver(&d)
			w := postOTLP(r, c.kind, c.encoding, body)
			kind := strings.TrimSuffix(c.kind, "; charset=utf-8")
			if kind == "" {
				kind = "text/plain"
			}
			rejected, text := told(t, kind, w.Code, w.Body.Bytes())
			if w.Code != c.status || rejected != c.rejected || !strings.Contains(text, c.text) || c.status == 200 &&
				(c.text == "") != (text == "") ||
				strings.Join(d.got, "; ") != c.got || strings.Join(d.malformed, "; ") != c.unread ||
				w.Header().Get("Retry-After") != c.repeat ||
				!strings.HasPrefix(w.Header().Get("Content-Type"), kind) {
				t.Errorf("%s: got %d, %d points rejected, %q, %v; the distributor got %q, malformed %q\n"+
					"want %d, %d, %q; %q, malformed %q", c.why, w.Code, rejected, text, w.Header(), d.got, d.malformed,
					c.status, c.rejected, c.text, c.got, c.unread)
			}
			counted := c.rejected > 0 && c.d.outcome.Written.Samples+c.d.added.Written.Samples == 0
			if counted != (len(d.refused) == 1) {
				t.Errorf("%s: got the refusals %q; whether one is wanted: %t", c.why, d.refused, counted)
			}
			if !r.memory.TryAcquire(r.MaxMemory) {
				t.Errorf("%s: not all memory was given back", c.why)
			}
		}
	}
}

// The server does not store exemplars of deltas. The sender made no mistake, so the server
// counts these exemplars but does not report them in the answer.
func TestExemplarsOfDeltasAreCounted(t *testing.T) {
	r := otlpRequest(1, pmetric.AggregationTemporalityDelta)
	points := r.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(1).Sum().DataPoints()
	points.At(0).Exemplars().AppendEmpty().SetDoubleValue(1)
	d := distributor{settings: escaping}
	w := postOTLP(newReceiver(&d), protobuf, "", bytes.NewReader(must(t, r.MarshalProto)))
	if w.Code != http.StatusOK || w.Body.Len() > 0 || len(d.refused) != 1 {
		t.Errorf("got %d %q and the refusals %q; want 200, no text and one refused exemplar", w.Code, w.Body, d.refused)
	}
}

// On success the answer has no partial_success at all, because senders log any
// partial_success as a warning.
func TestOTLPSuccessSaysNothing(t *testing.T) {
	if b := (partial{}).encode(otlp.Protobuf); len(b) != 0 {
		t.Errorf("%q", b)
	}
	if b := (partial{}).encode(otlp.JSON); string(b) != "{}" {
		t.Errorf("%s", b)
	}
}

// Remote write and OTLP share one memory limit: while requests of one protocol hold all memory,
// a request of the other gets none.
func TestOTLPSharesTheMemory(t *testing.T) {
	d := &distributor{settings: escaping}
	r := newReceiver(d)
	if !r.memory.TryAcquire(r.MaxMemory - 100) {
		t.Fatal("no memory")
	}
	if w := postOTLP(r, protobuf, "", bytes.NewReader(must(t, otlpRequest(1).MarshalProto))); w.Code != 503 ||
		w.Header().Get("Retry-After") != "2" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.memory.Release(r.MaxMemory - 100)
	if !r.memory.TryAcquire(r.MaxMemory) {
		t.Error("not all memory was given back")
	}
}

// FuzzOTLP: any input gets an answer, and is counted.
func FuzzOTLP(f *testing.F) {
	wire, _ := otlpRequest(2, pmetric.AggregationTemporalityDelta,
		pmetric.AggregationTemporalityUnspecified).MarshalProto()
	text, _ := otlpRequest(2, pmetric.AggregationTemporalityDelta, pmetric.AggregationTemporalityUnspecified).MarshalJSON()
	f.Add(wire, false, false)
	f.Add(text, true, false)
	f.Add(zip(wire), false, true)
	f.Fuzz(func(t *testing.T, body []byte, js, zipped bool) {
		kind, encoding := protobuf, ""
		if js {
			kind = jsonType
		}
		if zipped {
			encoding = "gzip"
		}
		d := &distributor{settings: escaping}
		r := newReceiver(d)
		w := postOTLP(r, kind, encoding, bytes.NewReader(body))
		told(t, kind, w.Code, w.Body.Bytes())
		if (w.Code == 200) != (len(d.malformed) == 0) || !r.memory.TryAcquire(r.MaxMemory) {
			t.Errorf("the answer is %d %q, and the requests counted as malformed are %q", w.Code, w.Body, d.malformed)
		}
	})
}

// serveGRPC serves gRPC for one tenant until `stop`, and returns a client.
func serveGRPC(t *testing.T, r *Receiver) (_ pmetricotlp.GRPCClient, stop func()) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: http.HandlerFunc(r.GRPC), Protocols: &protocols}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return pmetricotlp.NewGRPCClient(client), func() {
		_ = client.Close()
		if err := errors.Join(server.Shutdown(t.Context()), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

// Each message gets the same answer over gRPC as over HTTP, as a gRPC status.
func TestGRPCAnswers(t *testing.T) {
	const written = "team v2=false {Samples:2 Histograms:0 Exemplars:0}"
	for _, c := range []struct {
		why      string
		request  pmetricotlp.ExportRequest
		zipped   bool
		d        distributor
		code     string
		rejected int64
		text     string
		again    time.Duration
		got      string
		unread   string
	}{
		{why: "written", request: otlpRequest(2), code: "OK", got: written},
		{why: "compressed", request: otlpRequest(2), zipped: true, code: "OK", got: written},
		{why: "empty", request: pmetricotlp.NewExportRequest(), code: "OK"},
		{why: "no temporality", request: otlpRequest(2, pmetric.AggregationTemporalityUnspecified), code: "OK", rejected: 2,
			text: "cumulative or delta", got: written},
		{why: "delta", request: otlpRequest(2, pmetric.AggregationTemporalityDelta), code: "OK",
			got: written + "; added " + written},
		{why: "over the rate", request: otlpRequest(2), d: distributor{admit: again{}}, code: "Unavailable",
			text: "come again", again: 1200 * time.Millisecond},
		{why: "the disk is full", request: otlpRequest(2), d: distributor{push: again{}}, code: "Unavailable",
			text: "come again", again: 1200 * time.Millisecond, got: written},
		{why: "another fault", request: otlpRequest(2), d: distributor{push: errors.New("broken")}, code: "Internal",
			text: "broken", got: written},
		{why: "too large", request: otlpRequest(1000), code: "ResourceExhausted",
			text: "decompressed, and the limit is 10000", unread: "team too_large"},
		{why: "a message that is too large after decompression",
			request: otlpRequest(1000), zipped: true, code: "ResourceExhausted",
			text: "decompressed, and the limit is 10000", unread: "team too_large"},
		{why: "too deep", request: deep(), code: "InvalidArgument", text: "too deep", unread: "team malformed"},
	} {
		d := c.d
		d.settings = escaping
		r := newReceiver(&d)
		var options []grpc.CallOption
		if c.zipped {
			options = append(options, grpc.UseCompressor("gzip"))
		}
		client, stop := serveGRPC(t, r)
		answer, err := client.Export(t.Context(), c.request, options...)
		stop()
		s, _ := grpcstatus.FromError(err)
		text, rejected := s.Message(), int64(0)
		if err == nil {
			text, rejected = answer.PartialSuccess().ErrorMessage(), answer.PartialSuccess().RejectedDataPoints()
		}
		var wait time.Duration
		for _, detail := range s.Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				wait = retry.RetryDelay.AsDuration()
			}
		}
		if s.Code().String() != c.code || rejected != c.rejected || !strings.Contains(text, c.text) ||
			(c.text == "") != (text == "") || wait != c.again ||
			strings.Join(d.got, "; ") != c.got || strings.Join(d.malformed, "; ") != c.unread {
			t.Errorf("%s: got %v, %d points rejected, %q, retry after %v; the distributor got %q, malformed %q\n"+
				"want %s, %d, %q, %v; %q, malformed %q", c.why, s.Code(), rejected, text, wait, d.got, d.malformed,
				c.code, c.rejected, c.text, c.again, c.got, c.unread)
		}
		if !r.memory.TryAcquire(r.MaxMemory) {
			t.Errorf("%s: not all memory was given back", c.why)
		}
	}
}

func deep() pmetricotlp.ExportRequest {
	m := otlpRequest(1)
	v := m.Metrics().ResourceMetrics().At(0).Resource().Attributes().PutEmpty("a")
	for range 100 {
		v = v.SetEmptySlice().AppendEmpty()
	}
	return m
}

func TestOTLPIsMeasured(t *testing.T) {
	r := New(Options{Distributor: &distributor{settings: escaping}, Tenant: func(*http.Request) string { return "team" },
		Sender: peerOf, Token: noToken, MaxMemory: 100_000, Registry: prometheus.NewRegistry()})
	postOTLP(r, protobuf, "", strings.NewReader(""))
	client, stop := serveGRPC(t, r)
	if _, err := client.Export(t.Context(), otlpRequest(0)); err != nil {
		t.Error(err)
	}
	stop()
	if n := testutil.CollectAndCount(r.metrics.seconds); n != 1 {
		t.Errorf("%d statuses", n)
	}
}

// A request of deltas that is sent again has the same hash, however it is compressed. A group needs
// this to count the deltas once.
func TestHashesOfDeltas(t *testing.T) {
	d := distributor{settings: escaping}
	r := newReceiver(&d)
	two := must(t, otlpRequest(2, pmetric.AggregationTemporalityDelta).MarshalProto)
	three := must(t, otlpRequest(3, pmetric.AggregationTemporalityDelta).MarshalProto)
	postOTLP(r, protobuf, "", bytes.NewReader(two))
	postOTLP(r, protobuf, "gzip", bytes.NewReader(zip(two)))
	postOTLP(r, protobuf, "", bytes.NewReader(three))
	if h := d.hashes; len(h) != 3 || h[0] != h[1] || h[1] == h[2] || h[0] == 0 {
		t.Errorf("hashes %x", h)
	}
}
