package receive

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// exportPath is the only method of OTLP's metrics service.
const exportPath = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

// GRPC answers OTLP over gRPC, below a server that speaks HTTP/2. Source: "gRPC over HTTP2".
//
// The body of a call is a prefix and one message, so the Receiver reads a call like a request
// over HTTP: a call takes memory only as its bytes come, and is cut off when it stalls. A gRPC
// library would return a message only after all of its bytes have come.
func (r *Receiver) GRPC(w http.ResponseWriter, request *http.Request) {
	begun := time.Now()
	if !SpeaksGRPC(w, request) {
		return
	}
	if request.URL.Path != exportPath {
		AnswerGRPC(w, status.Newf(codes.Unimplemented,
			"unknown method %.200q; send OTLP metrics to %s", request.URL.Path, exportPath), nil)
		return
	}
	p, err := r.receiveGRPC(newPaced(w, request), request, begun)
	r.noteRefusals(stage.OTLP, request, &p.outcome, err)
	code, answer := http.StatusOK, status.New(codes.OK, "")
	if err != nil {
		code = httpStatus(err)
		answer, _ = statusOf(err)
	}
	r.metrics.answer(code, time.Since(begun))
	AnswerGRPC(w, answer, p.encode(otlp.Protobuf))
}

// SpeaksGRPC reports whether a request is a gRPC call. If not, it answers the request with an
// error.
func SpeaksGRPC(w http.ResponseWriter, request *http.Request) bool {
	kind := request.Header.Get("Content-Type")
	if request.ProtoMajor == 2 && request.Method == http.MethodPost && strings.HasPrefix(kind, "application/grpc") {
		return true
	}
	// net/http reads the body before it answers, and without a deadline it waits for the body forever.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stallTime)) // fails on a connection without deadlines
	http.Error(w, "this address speaks only gRPC over HTTP/2; "+
		"send OTLP over HTTP to the address of http.listen, POST /v1/metrics", http.StatusUnsupportedMediaType)
	return false
}

func (r *Receiver) receiveGRPC(from *paced, request *http.Request, begun time.Time) (p partial, err error) {
	tenant := r.Tenant(request)
	if err := r.Distributor.Admit(tenant); err != nil {
		return p, err
	}
	held := r.hold(tenant, request)
	defer held.release()
	held.begin(stage.OTLP, begun, request.Header)
	body := held.buffer()
	if err := r.readMessage(body, from, request.Header.Get("Grpc-Encoding"), held); err != nil {
		return p, err
	}
	return r.export(held.context(request), tenant, body, otlp.Protobuf, held)
}

// prefixLen is the length in bytes of the prefix before a message. The prefix has one byte that
// is 1 if the message is compressed and otherwise 0, and four bytes with the length of the
// message, big-endian.
const prefixLen = 5

// readMessage reads the message of a call, and checks that no bytes follow the message.
func (r *Receiver) readMessage(body *buf.Buf, from *paced, encoding string, held *holding) error {
	var prefix [prefixLen]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return r.refuseBody(held.tenant, fmt.Errorf("the call ended before its message began: %w", err))
	}
	size, limit := binary.BigEndian.Uint32(prefix[1:]), r.Distributor.MaxBody()
	zipped := prefix[0] == 1
	switch {
	case prefix[0] > 1:
		return r.refuse(held.tenant, http.StatusBadRequest, "malformed",
			fmt.Errorf("the message begins with byte %d; gRPC allows only 0 and 1 there", prefix[0]))
	case zipped && encoding != "gzip":
		return r.refuse(held.tenant, http.StatusUnsupportedMediaType, "content_type",
			fmt.Errorf("grpc-encoding %.80q is not supported; send gzip, or uncompressed", encoding))
	case uint64(size) > uint64(limit):
		return r.refuseBody(held.tenant, &remotewrite.SizeError{Size: uint64(size), Limit: limit})
	}
	message := io.LimitedReader{R: from, N: int64(size)}
	if err := r.readOTLP(body, &message, zipped, int(size), held); err != nil {
		return err
	}
	if message.N > 0 {
		return r.refuse(held.tenant, http.StatusBadRequest, "malformed",
			fmt.Errorf("the message lacks %d bytes, or has them after its compressed part", message.N))
	}
	switch n, err := from.Read(prefix[:1]); {
	case n > 0:
		return r.refuse(held.tenant, http.StatusBadRequest, "malformed", errors.New("the call has more than one message"))
	case !errors.Is(err, io.EOF):
		return r.refuseBody(held.tenant, fmt.Errorf("the call did not end after its message: %w", err))
	}
	return nil
}

// AnswerGRPC ends a call with its status, after sending `message` if the call succeeded.
func AnswerGRPC(w http.ResponseWriter, s *status.Status, message []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/grpc")
	header.Set("Grpc-Accept-Encoding", "gzip")
	w.WriteHeader(http.StatusOK)
	if s.Code() == codes.OK {
		framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
		_, _ = w.Write(append(framed, message...)) // an error means that the client has gone
	}
	_ = http.NewResponseController(w).Flush() // otherwise net/http would add a Content-Length, which gRPC does not use
	header.Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(s.Code())))
	if s.Message() != "" {
		header.Set(http.TrailerPrefix+"Grpc-Message", percentEncoded(s.Message()))
	}
	if len(s.Proto().GetDetails()) > 0 {
		details, err := proto.Marshal(s.Proto())
		if err != nil {
			panic(fmt.Sprintf("BUG: %v cannot be encoded: %v", s, err))
		}
		header.Set(http.TrailerPrefix+"Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	}
}

// percentEncoded encodes a text for a gRPC header.
func percentEncoded(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
