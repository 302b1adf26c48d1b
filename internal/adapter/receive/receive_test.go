package receive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/write"
)

// distributor gives preset answers and remembers the requests.
type distributor struct {
	admit, push, pushDeltas error
	outcome, added          outcome.Outcome // what Push and PushDeltas return
	hashes                  []uint64        // hashes of the requests of deltas
	got                     []string        // tenant, version and counts of each request
	senders                 []string
	malformed               []string
	during                  func()                // called by Push if not nil
	take                    func(*write.Incoming) // called by Push if not nil
	wait                    func(context.Context) // called by Push if not nil
	settings                otlp.Settings
	refused                 []string // tenant and outcome of each call of Refused
}

func (d *distributor) Admit(string) error    { return d.admit }
func (d *distributor) MaxBody() int          { return 10_000 }
func (d *distributor) NoMemory(string) error { return again{} }
func (d *distributor) Malformed(tenant, reason string) {
	d.malformed = append(d.malformed, tenant+" "+reason)
}

func (d *distributor) Push(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error) {
	if d.during != nil {
		d.during()
	}
	if d.wait != nil {
		d.wait(ctx)
	}
	d.senders = append(d.senders, r.Sender.String())
	d.got = append(d.got, tenant+partsOf(r))
	if d.take != nil {
		d.take(r)
	}
	return d.outcome, d.push
}

func (d *distributor) PushDeltas(_ context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error) {
	d.got = append(d.got, "added "+tenant+partsOf(r))
	d.hashes = append(d.hashes, r.Hash)
	return d.added, d.pushDeltas
}

func partsOf(r *write.Incoming) string {
	c := r.Counts()
	return fmt.Sprintf(" v2=%v {Samples:%d Histograms:%d Exemplars:%d}", r.Version2(), c.Samples, c.Histograms,
		c.Exemplars)
}

func (d *distributor) OTLP() otlp.Settings { return d.settings }
func (d *distributor) Refused(tenant string, o *outcome.Outcome) {
	d.refused = append(d.refused, tenant+" "+o.Text())
}

// again is an error that allows a retry.
type again struct{}

func (again) Error() string             { return "come again" }
func (again) RetryAfter() time.Duration { return 1200 * time.Millisecond }

func v1Body(t *testing.T) []byte {
	t.Helper()
	m := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: []prompb.Label{{Name: "__name__", Value: "up"}},
		Samples: []prompb.Sample{{Value: 1, Timestamp: 2}}}}}
	body, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func v2Body(t *testing.T) []byte {
	t.Helper()
	m := writev2.Request{Symbols: []string{"", "__name__", "up"},
		Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1, 2},
			Samples: []writev2.Sample{{Value: 1, Timestamp: 2}, {Value: 1, Timestamp: 3}}}}}
	body, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// peerOf returns the sender of a request behind no proxy.
func peerOf(r *http.Request) sender.Sender { return sender.Of(r.RemoteAddr, r.UserAgent()) }

func noToken(*http.Request) string { return "" }

func newReceiver(d *distributor) *Receiver {
	return New(Options{Distributor: d,
		Tenant: func(r *http.Request) string {
			return cmp.Or(r.Header.Get("X-Scope-OrgID"), "team")
		}, Sender: peerOf, Token: noToken, MaxMemory: 100_000, Registry: prometheus.NewRegistry()})
}

const (
	typeV1 = "application/x-protobuf;proto=prometheus.WriteRequest"
	typeV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

func post(r *Receiver, contentType, encoding string, body io.Reader) *httptest.ResponseRecorder {
	request := httptest.NewRequest("POST", "/api/v1/write", body)
	for name, value := range map[string]string{"Content-Type": contentType, "Content-Encoding": encoding} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	r.RemoteWrite(w, request)
	return w
}

// The distributor finds the trip of a watched request in the context, over each protocol.
func TestTheContextHasTheTrip(t *testing.T) {
	var trip *stage.Trip
	r := newReceiver(&distributor{wait: func(ctx context.Context) { trip = stage.FromContext(ctx) }})
	for _, watch := range []*stage.Watch{nil, stage.NewWatch()} {
		r.Watch = watch
		for input, serve := range map[stage.Input]func(){
			stage.RemoteWrite: func() { post(r, typeV1, "snappy", bytes.NewReader(snappy.Encode(nil, v1Body(t)))) },
			stage.OTLP: func() {
				body := bytes.NewReader(must(t, otlpRequest(2).MarshalProto))
				request := httptest.NewRequest("POST", "/v1/metrics", body)
				request.Header.Set("Content-Type", protobuf)
				r.OTLP(httptest.NewRecorder(), request)
			},
		} {
			trip = new(stage.Trip)
			if serve(); (trip != nil) != (watch != nil) || trip != nil && (trip.Input != input || trip.Tenant != "team") {
				t.Errorf("input %v, with a Watch %v: the trip in the context is %+v", input, watch != nil, trip)
			}
		}
	}
}

// When a sender disconnects, its request stops waiting in the distributor. This holds for
// each protocol over HTTP/1.
func TestASenderThatLeavesGivesUpItsPlace(t *testing.T) {
	for path, body := range map[string][]byte{
		"/api/v1/write": snappy.Encode(nil, v1Body(t)), "/v1/metrics": must(t, otlpRequest(2).MarshalProto),
	} {
		came, left := make(chan struct{}), make(chan error, 1)
		r := newReceiver(&distributor{wait: func(ctx context.Context) {
			close(came)
			select {
			case <-ctx.Done():
				left <- nil
			case <-time.After(30 * time.Second):
				left <- errors.New("the request still waits after its sender disconnected")
			}
		}})
		mux := http.NewServeMux()
		mux.HandleFunc("/api/v1/write", r.RemoteWrite)
		mux.HandleFunc("/v1/metrics", r.OTLP)
		server := httptest.NewServer(mux)
		ctx, leave := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, "POST", server.URL+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", protobuf)
		go func() {
			<-came
			leave()
		}()
		if answer, err := server.Client().Do(request); err == nil {
			answer.Body.Close()
			t.Errorf("%s: answered %s", path, answer.Status)
		}
		if err := <-left; err != nil {
			t.Errorf("%s: %v", path, err)
		}
		server.Close()
	}
}

// In each protocol the distributor gets the sender of a request, and the table of senders lists the
// sender with its samples and bytes. An unreadable request reaches neither.
func TestSenders(t *testing.T) {
	d := &distributor{}
	r := newReceiver(d)
	metrics := must(t, otlpRequest(2).MarshalProto)
	send := func(path, contentType, agent string, body []byte, answer http.HandlerFunc) {
		request := httptest.NewRequest("POST", path, bytes.NewReader(body))
		request.Header.Set("Content-Type", contentType)
		request.Header.Set("User-Agent", agent)
		if agent == "otel/1" {
			request.Header.Set("Content-Encoding", "gzip")
		}
		request.RemoteAddr = "10.0.0.7:4711"
		answer(httptest.NewRecorder(), request)
	}
	for range 2 {
		send("/api/v1/write", typeV1, "shop/1", snappy.Encode(nil, v1Body(t)), r.RemoteWrite)
	}
	send("/v1/metrics", "application/x-protobuf", "otel/1", zip(metrics), r.OTLP)
	send("/api/v1/write", typeV1, "broken", []byte("no request"), r.RemoteWrite)
	if want := []string{"10.0.0.7 (shop/1)", "10.0.0.7 (shop/1)", "10.0.0.7 (otel/1)"}; !slices.Equal(d.senders, want) {
		t.Errorf("%q", d.senders)
	}
	rows, _ := r.sources.Busiest(time.Now().Unix()+1, 10)
	var got []string
	for _, row := range rows {
		got = append(got, fmt.Sprintf("%s %s %s: %d of %d bytes, %d samples", row.Tenant, row.Input, row.Sender, row.Count,
			row.Bytes, row.Amount.Samples))
	}
	want := []string{
		fmt.Sprintf("team remote_write 10.0.0.7 (shop/1): 2 of %d bytes, 2 samples", 2*len(v1Body(t))),
		fmt.Sprintf("team otlp 10.0.0.7 (otel/1): 1 of %d bytes, 2 samples", len(metrics)),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each kind of request has a known answer, with known headers.
func TestAnswers(t *testing.T) {
	v1, v2 := v1Body(t), v2Body(t)
	pack := func(b []byte) []byte { return snappy.Encode(nil, b) }
	var framed bytes.Buffer
	fw := snappy.NewBufferedWriter(&framed)
	_, _ = fw.Write(v1)
	_ = fw.Close()
	var written, partial, limited outcome.Outcome
	written.Written = outcome.Counts{Samples: 3, Histograms: 2, Exemplars: 1}
	partial.Written.Samples = 1
	limited.Written.Samples = 1
	dropped := written
	dropped.Dropped.Samples = 4
	refuse := func(o *outcome.Outcome, reason outcome.Reason) {
		o.Refuse(reason, outcome.Counts{Samples: 1})
		o.Tell("up{}", errors.New("the cause"))
	}
	refuse(&partial, outcome.Duplicate)
	refuse(&limited, outcome.TooManySeries)

	for _, c := range []struct {
		why             string
		kind, encoding  string
		body            []byte
		d               distributor
		status          int
		text            string
		got, malformed  string
		samples, repeat string // headers
	}{
		{why: "version 1", kind: typeV1, encoding: "snappy", body: pack(v1), d: distributor{outcome: written}, status: 204,
			got: "team v2=false {Samples:1 Histograms:0 Exemplars:0}", samples: "3"},
		{why: "version 2", kind: typeV2, encoding: "snappy", body: pack(v2), d: distributor{outcome: written}, status: 204,
			got: "team v2=true {Samples:2 Histograms:0 Exemplars:0}", samples: "3"},
		{why: "version 1 without a proto parameter", kind: "application/x-protobuf", encoding: "snappy", body: pack(v1),
			status: 204, got: "team v2=false {Samples:1 Histograms:0 Exemplars:0}", samples: "0"},
		{why: "the oldest senders send no Content-Type", body: pack(v1), status: 204,
			got: "team v2=false {Samples:1 Histograms:0 Exemplars:0}", samples: "0"},
		{why: "an empty request is a success", kind: typeV2, encoding: "snappy", body: pack(nil), status: 204,
			got: "team v2=true {Samples:0 Histograms:0 Exemplars:0}", samples: "0"},
		{why: "a request that is written only in part never gets a 2xx", kind: typeV2, encoding: "snappy", body: pack(v2),
			d: distributor{outcome: partial}, status: 400,
			text: "1 of 2 were refused (1 duplicate)", samples: "1", got: "team v2=true {Samples:2 Histograms:0 Exemplars:0}"},
		{why: "a limit", kind: typeV2, encoding: "snappy", body: pack(v2), d: distributor{outcome: limited}, status: 429,
			text: "too_many_series", samples: "1", got: "team v2=true {Samples:2 Histograms:0 Exemplars:0}"},
		{why: "samples that a rule drops count as written", kind: typeV2, encoding: "snappy", body: pack(v2),
			d: distributor{outcome: dropped}, status: 204, samples: "7",
			got: "team v2=true {Samples:2 Histograms:0 Exemplars:0}"},
		{why: "a request over the rate is not read", kind: typeV2, encoding: "snappy", body: []byte("never read"),
			d: distributor{admit: again{}}, status: 503, text: "come again", samples: "0", repeat: "2"},
		{why: "the disk is full", kind: typeV2, encoding: "snappy", body: pack(v2), d: distributor{push: again{}},
			status: 503, text: "come again", samples: "0", repeat: "2",
			got: "team v2=true {Samples:2 Histograms:0 Exemplars:0}"},
		{why: "another type", kind: "application/json", encoding: "snappy", body: pack(v1), status: 415,
			text: "send application/x-protobuf;proto=", samples: "0", malformed: "team content_type"},
		{why: "another message", kind: "application/x-protobuf;proto=x.Y", encoding: "snappy", body: pack(v1), status: 415,
			text: "x.Y", samples: "0", malformed: "team content_type"},
		{why: "an invalid type", kind: "a/b;;c", encoding: "snappy", body: pack(v1), status: 415, text: "a/b;;c",
			samples: "0", malformed: "team content_type"},
		{why: "another encoding", kind: typeV2, encoding: "gzip", body: pack(v1), status: 415,
			text: "send snappy in its block format", samples: "0", malformed: "team content_type"},
		{why: "framed snappy", kind: typeV2, encoding: "snappy", body: framed.Bytes(), status: 415, text: "framed format",
			samples: "0", malformed: "team content_type"},
		{why: "not snappy", kind: typeV2, encoding: "snappy", body: []byte("\xff\xff\xff\xff\xff\xff"), status: 400,
			text: "not compressed with snappy", samples: "0", malformed: "team malformed"},
		{why: "an empty body", kind: typeV2, encoding: "snappy", status: 400, text: "not compressed with snappy",
			samples: "0", malformed: "team malformed"},
		{why: "not protobuf", kind: typeV2, encoding: "snappy", body: pack([]byte("\x0a")), status: 400, text: "byte 0",
			samples: "0", malformed: "team malformed"},
		{why: "a reference to no symbol", kind: typeV2, encoding: "snappy", body: pack([]byte("\x2a\x04\x0a\x02\x01\x02")),
			status: 400, text: "refers to symbol", samples: "0", malformed: "team malformed"},
		{why: "it promises 4 GiB", kind: typeV2, encoding: "snappy", body: []byte("\xff\xff\xff\xff\x0f"), status: 413,
			text: "the limit is 10000", samples: "0", malformed: "team too_large"},
		{why: "a body that is too large after decompression",
			kind: typeV2, encoding: "snappy", body: pack(make([]byte, 10_001)), status: 413,
			text: "10001 bytes", samples: "0", malformed: "team too_large"},
		{why: "a body that is too large before decompression",
			kind: typeV2, encoding: "snappy", body: make([]byte, 10_001), status: 413,
			text: "10001 bytes", samples: "0", malformed: "team too_large"},
	} {
		d := c.d
		w := post(newReceiver(&d), c.kind, c.encoding, bytes.NewReader(c.body))
		header := w.Header()
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) || (w.Code == 204) != (w.Body.Len() == 0) ||
			strings.Join(d.got, "; ") != c.got || strings.Join(d.malformed, "; ") != c.malformed ||
			header.Get("X-Prometheus-Remote-Write-Samples-Written") != c.samples || header.Get("Retry-After") != c.repeat ||
			header.Get("X-Prometheus-Remote-Write-Histograms-Written") == "" ||
			header.Get("X-Prometheus-Remote-Write-Exemplars-Written") == "" {
			t.Errorf("%s: got %d %q, %v; the distributor got %q, malformed %q\nwant %d %q; %q, malformed %q",
				c.why, w.Code, w.Body, header, d.got, d.malformed, c.status, c.text, c.got, c.malformed)
		}
	}
}

// unsized is a body without an announced length.
type unsized struct{ io.Reader }

func TestABodyOfUnknownLength(t *testing.T) {
	d := &distributor{}
	r := newReceiver(d)
	if w := post(r, typeV2, "snappy", unsized{bytes.NewReader(snappy.Encode(nil, v2Body(t)))}); w.Code != 204 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := post(r, typeV2, "snappy", unsized{bytes.NewReader(make([]byte, 50_000))}); w.Code != 413 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := post(r, typeV2, "snappy", unsized{io.MultiReader(strings.NewReader("half of"), failing{})}); w.Code != 400 ||
		!strings.Contains(w.Body.String(), "after 7 bytes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("cut off") }

// The memory of requests under way is bounded, and one tenant gets at most half of it. The sender
// retries a request for which no memory is left. A sender that only begins requests takes no
// memory from other tenants. At the end all memory is given back.
func TestMemoryIsBounded(t *testing.T) {
	d := &distributor{}
	r := newReceiver(d)
	held, release := make(chan bool), make(chan bool)
	answers := make(chan int)
	wire := snappy.Encode(nil, v2Body(t))
	const begun = 100_000 / share / growStep
	for range begun {
		go func() { answers <- post(r, typeV2, "snappy", unsized{&slow{held, release, wire}}).Code }()
		<-held
	}
	if w := post(r, typeV2, "snappy", bytes.NewReader(wire)); w.Code != 503 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	other := httptest.NewRequest("POST", "/api/v1/write", bytes.NewReader(wire))
	other.Header.Set("X-Scope-OrgID", "other")
	other.Header.Set("Content-Type", typeV2)
	w := httptest.NewRecorder()
	if r.RemoteWrite(w, other); w.Code != 204 {
		t.Errorf("a request of another tenant got %d %s, want 204", w.Code, w.Body)
	}
	for range begun {
		release <- true
		<-answers // 204, or 503 if there is no memory to decompress
	}
	if !r.memory.TryAcquire(r.MaxMemory) {
		t.Error("not all memory was given back")
	}
	if bytes, _ := r.tenants.Load("team"); bytes.(*atomic.Int64).Load() != 0 {
		t.Errorf("after all requests the tenant still holds %d bytes", bytes)
	}
}

// A decoded request may need more memory than it announced. It must first reserve the rest from the
// shared memory. So if a request is short on the wire but large in memory, the Receiver refuses it
// or asks for a retry before the request takes that memory.
func TestDecodedRequestsTakeMemory(t *testing.T) {
	refs := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), make([]byte, 4000)) // labels_refs
	deltas := protowire.AppendBytes(protowire.AppendTag(nil, 12, protowire.BytesType), make([]byte, 4000))
	deltas = protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), deltas) // histograms
	for why, series := range map[string][]byte{"references": refs, "buckets": deltas} {
		body := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), series)
		body = protowire.AppendBytes(protowire.AppendTag(body, 4, protowire.BytesType), nil)
		for busy, want := range map[int64]int{0: 204, 60_000: 503} {
			r := newReceiver(&distributor{})
			if !r.memory.TryAcquire(busy) {
				t.Fatal("no memory")
			}
			if w := post(r, typeV2, "snappy", bytes.NewReader(snappy.Encode(nil, body))); w.Code != want {
				t.Errorf("%s, with %d bytes taken: got %d %s, want %d", why, busy, w.Code, w.Body, want)
			}
			r.memory.Release(busy)
			if !r.memory.TryAcquire(r.MaxMemory) {
				t.Errorf("%s: not all memory was given back", why)
			}
		}
	}
}

// slow is a body that signals when it is read, and then waits before it returns bytes.
type slow struct {
	held, release chan bool
	body          []byte
}

func (s *slow) Read(b []byte) (int, error) {
	if s.held != nil {
		s.held <- true
		<-s.release
		s.held = nil
	}
	n := copy(b, s.body)
	if s.body = s.body[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestUnreadRequestsAreCounted(t *testing.T) {
	r := newReceiver(&distributor{})
	post(r, "text/plain", "", strings.NewReader(""))
	if n := testutil.ToFloat64(r.metrics.unread.WithLabelValues("content_type")); n != 1 {
		t.Errorf("%v", n)
	}
}
