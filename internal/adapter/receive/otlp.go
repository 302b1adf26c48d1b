package receive

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/seen"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// jsonType is the media type of OTLP in JSON.
const jsonType = "application/json"

// OTLP answers POST /v1/metrics. Source: opentelemetry-proto, "OTLP/HTTP".
func (r *Receiver) OTLP(w http.ResponseWriter, request *http.Request) {
	if !isPost(w, request, "OTLP") {
		return
	}
	begun := time.Now()
	form, known := formOf(request.Header)
	p, err := r.otlp(newPaced(w, request), request, form, known, begun)
	r.noteRefusals(stage.OTLP, request, &p.outcome, err)
	code, body := http.StatusOK, []byte(nil)
	if err == nil {
		body = p.encode(form)
	} else {
		s, again := statusOf(err)
		if code = httpStatus(err); again > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(again.Seconds()))))
		}
		body = encodeStatus(s, form)
	}
	r.metrics.answer(code, time.Since(begun))
	if !known { // a sender of an unknown media type gets plain text
		http.Error(w, err.Error(), code)
		return
	}
	kind := protobuf
	if form == otlp.JSON {
		kind = jsonType
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	_, _ = w.Write(body) // an error means that the client has gone
}

func formOf(header http.Header) (form otlp.Form, known bool) {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err == nil && kind == jsonType {
		return otlp.JSON, true
	}
	return otlp.Protobuf, err == nil && kind == protobuf
}

// otlp reads a request that came over HTTP, and exports it.
func (r *Receiver) otlp(
	from io.Reader, request *http.Request, form otlp.Form, known bool, begun time.Time,
) (p partial, err error) {
	tenant := r.Tenant(request)
	if err := r.Distributor.Admit(tenant); err != nil {
		return p, err
	}
	encoding := strings.ToLower(request.Header.Get("Content-Encoding"))
	switch {
	case !known:
		err = fmt.Errorf("Content-Type %.120q is not supported; send %s or %s",
			request.Header.Get("Content-Type"), protobuf, jsonType)
	case encoding != "" && encoding != "gzip" && encoding != "identity":
		err = fmt.Errorf("Content-Encoding %.80q is not supported; send gzip, or uncompressed", encoding)
	}
	if err != nil {
		return p, r.refuse(tenant, http.StatusUnsupportedMediaType, "content_type", err)
	}
	held := r.hold(tenant, request)
	defer held.release()
	held.begin(stage.OTLP, begun, request.Header)
	body := held.buffer()
	limit := r.Distributor.MaxBody()
	if err := sizeOf(request, limit); err != nil {
		return p, r.refuseBody(tenant, err)
	}
	// Data that cannot be compressed grows by a few bytes only, so this limit suffices.
	from = io.LimitReader(from, int64(limit)+1<<10)
	if err := r.readOTLP(body, from, encoding == "gzip", expected(request), held); err != nil {
		return p, err
	}
	return r.export(held.context(request), tenant, body, form, held)
}

var unzippers sync.Pool // of *gzip.Reader

// readOTLP reads a body and decompresses it if `zipped`. The sender announced a length of
// `expected` bytes before decompression. readOTLP takes memory as bytes come.
func (r *Receiver) readOTLP(body *buf.Buf, from io.Reader, zipped bool, expected int, held *holding) error {
	limit := r.Distributor.MaxBody()
	if zipped {
		z, _ := unzippers.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		defer unzippers.Put(z)
		if err := z.Reset(from); err != nil {
			return r.refuseBody(held.tenant, fmt.Errorf("the body is not compressed with gzip: %w", err))
		}
		from = z
		expected = limit
	}
	if err := readBody(body, from, expected, limit, held); err != nil {
		return r.refuseBody(held.tenant, err)
	}
	return nil
}

// partial is the rejected part of a request. The zero value means that nothing was rejected.
type partial struct {
	points  int64
	text    string
	outcome outcome.Outcome // with the parts of the request that were refused
}

// export converts a request, from HTTP or gRPC, to series and writes them. The labels of the series
// overwrite the body in its memory. Any further memory of the series is counted in `held`.
func (r *Receiver) export(
	ctx context.Context, tenant string, body *buf.Buf, form otlp.Form, held *holding,
) (p partial, err error) {
	held.trip.Pass(stage.Read, stage.Parse, time.Now())
	bytes := len(body.B)
	size, err := otlp.Size(body.B, form)
	if err != nil {
		return p, r.refuse(tenant, http.StatusBadRequest, "malformed", err)
	}
	size += cap(body.B)
	if err := held.grow(size); err != nil {
		return p, err
	}
	metrics, err := otlp.Decode(body.B, form)
	if err != nil {
		return p, r.refuse(tenant, http.StatusBadRequest, "malformed", err)
	}
	request, increments := held.request(), held.request()
	increments.Hash = uint64(seen.Of(held.sender, body.B))
	var builder, deltas remotewrite.Builder
	builder.Begin(&request.Request, body.B[:0])
	deltas.Begin(&increments.Request, nil) // most requests have no deltas
	converted, err := otlp.Convert(metrics, r.Distributor.OTLP(), &builder, &deltas,
		func(more int) error { return held.grow(size + more) })
	body.B = builder.Body
	if errors.Is(err, remotewrite.ErrTooLargeToBuild) {
		err = r.refuse(tenant, http.StatusRequestEntityTooLarge, "too_large", err)
	}
	if err != nil {
		return p, err
	}
	held.parsed(stage.OTLP, bytes, request, increments)
	// export writes cumulative points before deltas. If the deltas then fail, the sender sends the
	// whole request again, and the cumulative points are stored again with the same values, which is
	// harmless.
	var o outcome.Outcome
	if len(request.Series) > 0 {
		if o, err = r.Distributor.Push(ctx, tenant, request); err != nil {
			held.end(err)
			return p, err
		}
	}
	if len(increments.Series) > 0 {
		added, err := r.Distributor.PushDeltas(ctx, tenant, increments)
		if err != nil {
			held.end(err)
			return p, err
		}
		o.Add(&added)
	}
	held.end(nil)
	// export counts refusals only after it has written the rest. Otherwise, when a write fails and
	// the sender sends the request again, its refusals would be counted twice.
	all := converted.Refused
	if all.AnyRefused() || all.NotKept > 0 {
		r.Distributor.Refused(tenant, &all)
	}
	before := all.AllRefused()
	p.points, _ = o.OTLP(converted.Points, converted.Samples)
	p.points += int64(before.Samples + before.Histograms)
	all.Add(&o)
	p.outcome = all
	p.text = strings.ToValidUTF8(all.Text(), "\uFFFD")
	return p, nil
}

// encode returns an ExportMetricsServiceResponse. partial_success must be unset if nothing was
// rejected.
func (p partial) encode(form otlp.Form) (body []byte) {
	if p.points == 0 && p.text == "" {
		if form == otlp.JSON {
			return []byte("{}")
		}
		return nil
	}
	answer := pmetricotlp.NewExportResponse()
	answer.PartialSuccess().SetRejectedDataPoints(p.points)
	answer.PartialSuccess().SetErrorMessage(p.text)
	var err error
	if form == otlp.JSON {
		body, err = answer.MarshalJSON()
	} else {
		body, err = answer.MarshalProto()
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: %+v cannot be encoded: %v", p, err))
	}
	return body
}

// statusOf returns the google.rpc.Status of an error, and how long the sender must wait before it
// retries; 0 means that it must not retry.
func statusOf(err error) (s *status.Status, again time.Duration) {
	var retry interface{ RetryAfter() time.Duration }
	var refused *refusal
	text := strings.ToValidUTF8(err.Error(), "\uFFFD") // a decoder's error quotes the input
	switch {
	case errors.As(err, &retry):
		after := durationpb.New(retry.RetryAfter())
		s, detailErr := status.New(codes.Unavailable, text).WithDetails(&errdetails.RetryInfo{RetryDelay: after})
		if detailErr != nil {
			panic(fmt.Sprintf("BUG: RetryInfo cannot be encoded: %v", detailErr))
		}
		return s, retry.RetryAfter()
	case !errors.As(err, &refused):
		return status.New(codes.Internal, text), 0
	case refused.status == http.StatusRequestEntityTooLarge:
		return status.New(codes.ResourceExhausted, text), 0 // without RetryInfo, which would ask for a retry
	}
	return status.New(codes.InvalidArgument, text), 0
}

func httpStatus(err error) int {
	code, _ := failure(http.Header{}, err)
	return code
}

func encodeStatus(s *status.Status, form otlp.Form) (body []byte) {
	var err error
	if form == otlp.JSON {
		body, err = protojson.Marshal(s.Proto())
	} else {
		body, err = proto.Marshal(s.Proto())
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: %v cannot be encoded: %v", s, err))
	}
	return body
}
