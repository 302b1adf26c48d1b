// Package receive takes samples over HTTP and gRPC: it reads requests of remote write 1.0 and
// 2.0 and of OTLP, hands them to the distributor, and answers in the terms of the protocol.
// Callers authenticate requests first.
package receive

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Distributor takes requests.
type Distributor interface {
	// Admit returns an error if a request must be refused before it is read.
	Admit(tenant string) error
	// MaxBody returns how many bytes a request may have, decompressed.
	MaxBody() int
	// NoMemory returns the error of a request for which no memory is left.
	NoMemory(tenant string) error
	// Malformed counts a request that could not be read.
	Malformed(tenant, reason string)
	// Push writes a request: see package write. If the error has a RetryAfter, the sender may
	// retry.
	Push(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error)
	// PushDeltas adds increments to totals: see distributor.PushDeltas.
	PushDeltas(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error)
	// OTLP returns the settings for converting OTLP requests to series.
	OTLP() otlp.Settings
	// Refused counts the parts of a request that were refused before Push.
	Refused(tenant string, o *outcome.Outcome)
}

// Options configure a Receiver. All fields except Watch are required.
type Options struct {
	Distributor Distributor
	Tenant      func(*http.Request) string        // returns a request's tenant
	Sender      func(*http.Request) sender.Sender // returns a request's sender
	Token       func(*http.Request) string        // returns the name of a request's token; empty if it has none
	MaxMemory   int64                             // bytes of all requests under way, decompressed
	Watch       *stage.Watch                      // nil if trips are not watched
	Registry    prometheus.Registerer
}

// Receiver has the HTTP and gRPC handlers of all protocols.
type Receiver struct {
	Options
	memory  *semaphore.Weighted
	metrics *metrics
	tenants sync.Map // bytes of memory in use, by tenant: *atomic.Int64
	sources *top.Sources
}

// New makes a Receiver.
func New(o Options) *Receiver {
	sources := top.NewSources()
	return &Receiver{
		Options: o, memory: semaphore.NewWeighted(o.MaxMemory), metrics: newMetrics(o.Registry, sources), sources: sources,
	}
}

// Sent returns the busiest senders of all tenants, in the order of their readable requests in the last
// top.Span seconds, and one sum for all other senders.
func (r *Receiver) Sent(limit int) ([]top.RequesterRow, top.Rest) {
	return r.sources.Busiest(time.Now().Unix(), limit)
}

// Sources returns the senders of a tenant in the last minutes, those with the most samples first.
func (r *Receiver) Sources(tenant string) []top.Source {
	return r.sources.Of(tenant, time.Now().Unix())
}

// noteRefusals remembers what a request's sender was refused: the parts in `o`, or the whole request because of `err`.
// As in the ledger, a request counts as one.
func (r *Receiver) noteRefusals(input stage.Input, request *http.Request, o *outcome.Outcome, err error) {
	if err == nil && !o.AnyRefused() {
		return
	}
	from := top.Requester{Tenant: r.Tenant(request), Input: input.String(), Token: r.Token(request),
		Sender: r.Sender(request)}
	now := time.Now().Unix()
	if err != nil {
		r.sources.Refused(now, from, reasonOf(err), 1)
		return
	}
	for reason, parts := range o.Refused {
		if parts.Total() > 0 {
			r.sources.Refused(now, from, outcome.Reason(reason).String(), parts.Total())
		}
	}
}

// reasonOf is why a whole request was refused, in the ledger's words.
func reasonOf(err error) string {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused.reason
	}
	return "unavailable"
}

// refusal is the error of a request that is refused entirely. The sender must not retry it
// unchanged.
type refusal struct {
	status int
	reason string // spelled as in metrics and the ledger
	cause  error
}

func (e *refusal) Error() string { return e.cause.Error() }

// isPost reports whether the request is a POST. If not, it answers the request. The answer shows a
// person or a probe that the address is right.
func isPost(w http.ResponseWriter, request *http.Request, protocol string) bool {
	if request.Method == http.MethodPost {
		return true
	}
	w.Header().Set("Allow", http.MethodPost)
	http.Error(w, protocol+" takes POST, not "+request.Method, http.StatusMethodNotAllowed)
	return false
}

// failure returns the status and text for an error.
func failure(header http.Header, err error) (status int, text string) {
	var refused *refusal
	var again interface{ RetryAfter() time.Duration }
	switch {
	case errors.As(err, &refused):
		return refused.status, refused.Error()
	case errors.As(err, &again):
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(again.RetryAfter().Seconds()))))
		return http.StatusServiceUnavailable, err.Error()
	}
	return http.StatusInternalServerError, err.Error()
}

// sizeOf refuses a request whose announced length is too large.
func sizeOf(request *http.Request, limit int) error {
	if request.ContentLength > int64(limit) {
		return &remotewrite.SizeError{Size: uint64(request.ContentLength), Limit: limit}
	}
	return nil
}

func (r *Receiver) refuseBody(tenant string, err error) error {
	if errors.Is(err, errStalled) {
		r.metrics.unread.WithLabelValues("stalled").Inc()
		return stalled{err}
	}
	if _, again := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); again {
		return err
	}
	var size *remotewrite.SizeError
	switch {
	case errors.As(err, &size):
		return r.refuse(tenant, http.StatusRequestEntityTooLarge, "too_large", err)
	case errors.Is(err, remotewrite.ErrFramed):
		return r.refuse(tenant, http.StatusUnsupportedMediaType, "content_type", err)
	}
	return r.refuse(tenant, http.StatusBadRequest, "malformed", err)
}

func (r *Receiver) refuse(tenant string, status int, reason string, cause error) error {
	r.metrics.unread.WithLabelValues(reason).Inc()
	r.Distributor.Malformed(tenant, reason)
	return &refusal{status, reason, cause}
}
