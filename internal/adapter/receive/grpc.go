package receive

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	// Registers the compression that every OTLP client has.
	_ "google.golang.org/grpc/encoding/gzip"

	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// readTime is how long a sender may take for one request, as over HTTP.
const readTime = time.Minute

// GRPC are the options and the service of a gRPC server that takes OTLP. Who may ask as
// which tenant is decided by an interceptor, which puts the tenant into the context.
//
// The largest message is ingest.max_body as it is now: gRPC does not let it grow later.
func (r *Receiver) GRPC() ([]grpc.ServerOption, *grpc.ServiceDesc) {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(r.Distributor.MaxBody()), grpc.ForceServerCodecV2(codec{})},
		&grpc.ServiceDesc{
			ServiceName: "opentelemetry.proto.collector.metrics.v1.MetricsService",
			HandlerType: (*any)(nil),
			// On the wire a stream of one message is a call. As a stream its handler begins
			// before the message is read, and so can refuse it, or wait for memory.
			Streams:  []grpc.StreamDesc{{StreamName: "Export", Handler: func(_ any, s grpc.ServerStream) error { return r.exportGRPC(s) }}},
			Metadata: "opentelemetry/proto/collector/metrics/v1/metrics_service.proto",
		}
}

// exportGRPC answers Export.
func (r *Receiver) exportGRPC(s grpc.ServerStream) error {
	begun := time.Now()
	name, ok := tenant.FromContext(s.Context())
	if !ok {
		panic("BUG: a call passed the interceptor without a tenant")
	}
	p, err := r.receiveGRPC(name, s, begun)
	code := http.StatusOK
	if err != nil {
		code = httpStatus(err)
	}
	r.metrics.answer(code, time.Since(begun))
	if err != nil {
		answer, _ := statusOf(err)
		return answer.Err()
	}
	return s.SendMsg(message(p.encode(otlp.Protobuf)))
}

func (r *Receiver) receiveGRPC(tenant string, s grpc.ServerStream, begun time.Time) (p partial, err error) {
	if err := r.Distributor.Admit(tenant); err != nil {
		return p, err
	}
	body, err := r.readGRPC(tenant, s)
	if err != nil {
		return p, err
	}
	held := r.hold(tenant)
	defer held.release()
	headers, _ := metadata.FromIncomingContext(s.Context())
	held.begin(stage.OTLP, begun, http.Header{"Traceparent": headers.Get("traceparent")})
	held.buffers = append(held.buffers, body)
	if err := held.grow(cap(body.B)); err != nil {
		return p, err
	}
	return r.export(tenant, body, otlp.Protobuf, held)
}

// readGRPC reads the message. gRPC does not say how large one is before it has read it:
// each counts as the largest, and as many are read at once as ingest.max_memory has room
// for, in memory beside that. Others wait meanwhile, which is not for long: reading is
// quick, unless a sender is slow.
func (r *Receiver) readGRPC(tenant string, s grpc.ServerStream) (*buf.Buf, error) {
	late := time.NewTimer(readTime)
	defer late.Stop()
	ctx, cancel := context.WithTimeout(s.Context(), readTime)
	defer cancel()
	own, known := r.readers.Load(tenant)
	if !known { // of the places one tenant has a part, whatever it begins to send
		own, _ = r.readers.LoadOrStore(tenant, semaphore.NewWeighted(max(1, r.places/share)))
	}
	if own.(*semaphore.Weighted).Acquire(ctx, 1) != nil {
		return nil, r.Distributor.NoMemory()
	}
	if r.reading.Acquire(ctx, 1) != nil {
		own.(*semaphore.Weighted).Release(1)
		return nil, r.Distributor.NoMemory()
	}
	body := buf.Get()
	read := make(chan error, 1)
	go func() {
		err := s.RecvMsg(body)
		r.reading.Release(1)
		own.(*semaphore.Weighted).Release(1)
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil {
			body.Release()
			return nil, r.refuseGRPC(tenant, err)
		}
		return body, nil
	case <-late.C: // the end of the call will end the reading
		go func() {
			<-read
			body.Release()
		}()
		return nil, r.refuse(tenant, http.StatusBadRequest, "malformed", fmt.Errorf("the message had not come after %v", readTime))
	}
}

// refuseGRPC is for what gRPC has refused, and answered in its own words.
func (r *Receiver) refuseGRPC(tenant string, err error) error {
	if status.Code(err) == codes.ResourceExhausted {
		return r.refuse(tenant, http.StatusRequestEntityTooLarge, "too_large", err)
	}
	return r.refuse(tenant, http.StatusBadRequest, "malformed", err)
}

// codec hands messages over as they are on the wire.
type codec struct{}

// message is one to send.
type message []byte

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(message))}, nil
}

// Unmarshal copies into a *buf.Buf, since gRPC uses its own memory again.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	body := v.(*buf.Buf)
	body.B = slices.Grow(body.B[:0], data.Len())[:data.Len()]
	data.CopyTo(body.B)
	return nil
}
