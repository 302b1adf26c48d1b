package receive

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/stage"
)

// The media type of remote write, and the message names that it may have as a parameter.
const (
	protobuf  = "application/x-protobuf"
	messageV1 = "prometheus.WriteRequest"
	messageV2 = "io.prometheus.write.v2.Request"
)

// RemoteWrite answers POST /api/v1/write.
func (r *Receiver) RemoteWrite(w http.ResponseWriter, request *http.Request) {
	if !isPost(w, request, "remote write") {
		return
	}
	begun := time.Now()
	o, err := r.remoteWrite(newPaced(w, request), request, begun)
	r.noteRefusals(stage.RemoteWrite, request, &o, err)
	header := w.Header()
	// Each answer needs these headers: without them a sender assumes that the receiver understood
	// nothing. If the headers leave out a sample, the sender counts the sample as lost. So the
	// headers include samples that the configuration drops on purpose.
	taken := o.Written
	taken.Add(o.Dropped)
	header.Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(taken.Samples))
	header.Set("X-Prometheus-Remote-Write-Histograms-Written", strconv.Itoa(taken.Histograms))
	header.Set("X-Prometheus-Remote-Write-Exemplars-Written", strconv.Itoa(taken.Exemplars))
	status, text := o.RemoteWrite()
	if err != nil {
		status, text = failure(header, err)
	}
	r.metrics.answer(status, time.Since(begun))
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	http.Error(w, text, status)
}

func (r *Receiver) remoteWrite(from io.Reader, request *http.Request, begun time.Time) (o outcome.Outcome, err error) {
	tenant := r.Tenant(request)
	if err := r.Distributor.Admit(tenant); err != nil {
		return o, err
	}
	v2, err := version(request.Header)
	if err != nil {
		return o, r.refuse(tenant, http.StatusUnsupportedMediaType, "content_type", err)
	}
	limit := r.Distributor.MaxBody()
	held := r.hold(tenant, request)
	defer held.release()
	held.begin(stage.RemoteWrite, begun, request.Header)
	compressed := held.buffer()
	if err := sizeOf(request, limit); err != nil {
		return o, r.refuseBody(tenant, err)
	}
	if err := readBody(compressed, from, expected(request), limit, held); err != nil {
		return o, r.refuseBody(tenant, err)
	}
	held.trip.Pass(stage.Read, stage.Parse, time.Now())
	size, err := remotewrite.DecompressedSize(compressed.B, limit)
	if err != nil {
		return o, r.refuseBody(tenant, err)
	}
	if err := held.more(size); err != nil {
		return o, err
	}
	decoded := held.offered()
	body := decoded.Body
	if body.B, err = remotewrite.Decompress(body.B, compressed.B, limit); err != nil {
		return o, r.refuseBody(tenant, err)
	}
	decode := decoded.DecodeV1
	if v2 {
		decode = decoded.DecodeV2
	}
	decoded.Bound(held.more)
	if err := decode(body.B); err != nil {
		if held.refused != nil {
			return o, held.refused
		}
		return o, r.refuse(tenant, http.StatusBadRequest, "malformed", err)
	}
	decoded.Compressed = compressed.B
	held.parsed(stage.RemoteWrite, len(body.B), decoded)
	o, err = r.Distributor.Push(held.context(request), tenant, decoded)
	held.end(err)
	return o, err
}

// version returns the request's version. Only the content type decides it.
func version(header http.Header) (v2 bool, err error) {
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "snappy") {
		return false, fmt.Errorf("Content-Encoding %.80q is not supported; send snappy in its block format", encoding)
	}
	text := header.Get("Content-Type")
	if text == "" {
		return false, nil // the first senders of version 1 sent no Content-Type
	}
	kind, parameters, err := mime.ParseMediaType(text)
	message, given := parameters["proto"]
	switch {
	case err != nil || kind != protobuf:
	case !given || message == messageV1:
		return false, nil
	case message == messageV2:
		return true, nil
	}
	return false, fmt.Errorf("Content-Type %.120q is not supported; send %s;proto=%s or %s;proto=%s",
		text, protobuf, messageV2, protobuf, messageV1)
}

// expected is the announced length of a request's body, or a guess if there is none.
func expected(request *http.Request) int {
	if request.ContentLength < 0 {
		return firstRead
	}
	return int(request.ContentLength)
}
