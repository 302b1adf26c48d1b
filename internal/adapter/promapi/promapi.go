// Package promapi is the Prometheus HTTP API under /api/v1/: Prometheus' own handlers and engine,
// with our guards around them. Our own handlers replace the handlers that describe scrape targets and
// a single database.
//
// The querier provides the samples. Package server, which connects the roles, adds other
// endpoints, such as those for writes.
//
// The files, from the top; each uses only names of files below it:
//
//	promapi.go     API: Prometheus' handlers, and ours
//	routes.go      which paths are answered, and for whom
//	parameters.go  numbers without a sensible meaning are refused
//	cardinality.go how many series there are, and what each label costs
//	countdays.go   the series of days, and counts of days that are over
//	status.go      what a server says about itself
//	federate.go    what another Prometheus scrapes from here
//	engine.go      queries within their limits
//	steps.go       steps of range queries that earlier queries have evaluated
//	verify.go      queries that are evaluated in columns, compared with Prometheus' engine
//	metered.go     a storage whose readers pass their turn on
//	heapguard.go   ends the largest query before the memory is full
//	liverate.go    rates whose newest sample is live
//	cost.go        what a query costs, for whom
//	stream.go      results that go to the client series by series
//	answer.go      an answer on its way, and refusals
//	features.go    which features this server has, for Prometheus' handlers
//	turn.go        one piece of work in its lane
//	lanes.go       queues, slots and memory of each kind of work
//	config.go      limits
package promapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/route"
	prom "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	"go.opentelemetry.io/otel/propagation"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// Options configure the API. All fields are needed.
type Options struct {
	Engine    *Engine
	Queryable storage.SampleAndChunkQueryable // finds the tenant in the context of Select
	Exemplars storage.ExemplarQueryable       // also finds the tenant in the context
	Metadata  MetadataSource
	Families  FamilySource
	Stats     StatsSource
	Rules     RuleSource

	// Tenant returns a request's tenant.
	Tenant func(*http.Request) string
	// Sender returns a request's sender.
	Sender func(*http.Request) sender.Sender
	// Ready returns why queries cannot be answered yet; nil if they can.
	Ready func() error

	Now func() time.Time

	Build   v1.PrometheusVersion
	Runtime func() (v1.RuntimeInfo, error)
	Config  func() string     // the configuration in force, as YAML
	Flags   map[string]string // flags of the command line, by name

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// api has all handlers, and what they share.
type api struct {
	Options
	prometheus http.Handler // Prometheus' own router, with more routes than we offer
	routes     *http.ServeMux

	cardinalities cardinalities
	keptDays      keptDays // belongs to the request that counts series
}

// New returns the handler of /api/v1/ and of /federate.
func New(o Options) http.Handler {
	router := route.New().WithPrefix(prefix)
	newPrometheusAPI(&o).Register(router)
	a := &api{Options: o, prometheus: router, routes: http.NewServeMux(), cardinalities: newCardinalities()}
	a.register()
	return http.HandlerFunc(a.serve)
}

// serve does the work that all requests have in common.
func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	answer := newAnswer(w, a.askerOf(r))
	defer pprof.SetGoroutineLabels(r.Context()) // the next request of the connection must not have this query's labels
	defer a.done(answer, r)
	defer pagefault.On()()
	defer a.handlePanic(answer, r)
	if r.Method == http.MethodOptions { // a browser's preflight request
		a.prometheus.ServeHTTP(answer, r)
		return
	}
	if err := a.Ready(); err != nil {
		refuse(answer, r, http.StatusServiceUnavailable, "unavailable", err)
		return
	}
	// The engine has its own deadline of the same length. This deadline is for requests
	// without the engine.
	ctx, cancel := context.WithTimeout(r.Context(), a.Engine.timeout)
	defer cancel()
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	ctx = withAnswer(tenant.NewContext(ctx, a.Tenant(r)), answer)
	a.routes.ServeHTTP(answer, r.WithContext(ctx))
}

// handlePanic turns a panic outside of the engine into status 500. If part of an answer was
// sent, it cuts the connection instead, so that the client notices that the answer is
// incomplete.
func (a *api) handlePanic(w *answer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	if fault := pagefault.Of(p); fault != nil && !w.sent {
		err := a.Engine.suspect(a.Tenant(r), fault)
		w.Header().Del("Content-Encoding") // set by the compression that the panic ended
		refuse(w, r, http.StatusServiceUnavailable, "unavailable", err)
		return
	}
	a.Engine.failed.WithLabelValues(failedPanic).Inc()
	a.Logger.Error("panic in the HTTP API", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.sent {
		panic(http.ErrAbortHandler)
	}
	w.Header().Del("Content-Encoding") // set by the compression that the panic ended
	refuse(w, r, http.StatusInternalServerError, "internal",
		fmt.Errorf("panic: %v; this is a bug, and the log has the details", p))
}

// done counts a client that was cut off.
func (a *api) done(w *answer, r *http.Request) {
	if w.cut {
		a.Engine.failed.WithLabelValues(failedSlow).Inc()
		a.Logger.Warn("a client read its answer too slowly and was cut off",
			"tenant", a.Tenant(r), "path", r.URL.Path, "client", w.asker.String(),
			"bytes", w.written, "least_bytes_a_second", answerRate, "after", answerGrace)
	}
}

// readFrameBytes is the size of a frame of remote read, Prometheus' default.
const readFrameBytes = 1 << 20

// newPrometheusAPI makes Prometheus' handlers. Some arguments, such as the database to administer, are
// used only by routes that `register` leaves out. These arguments are nil.
func newPrometheusAPI(o *Options) *v1.API {
	none := noScraping{}
	lookup := o.Engine.lanes.lookup
	prometheus := v1.NewAPI(
		o.Engine, metered{o.Queryable},
		nil, nil, // appenders
		exemplars{o.Exemplars},
		func(context.Context) v1.ScrapePoolsRetriever { return none },
		func(context.Context) v1.TargetRetriever { return none },
		func(ctx context.Context) v1.AlertmanagerRetriever { return o.rulesFor(ctx) },
		func() prom.Config { return prom.Config{} }, // remote read takes external labels from it
		o.Flags,
		v1.GlobalURLOptions{},
		func(f http.HandlerFunc) http.HandlerFunc { return f }, // see serve
		nil, "", false, // database, its directory, its administration
		false, 0, // search
		o.Logger,
		func(ctx context.Context) v1.RulesRetriever { return o.rulesFor(ctx) },
		int(lookup.share/readBytes), int(lookup.count), readFrameBytes,
		false, // agent
		noOrigin,
		o.Runtime,
		&o.Build,
		noNotifications, nil, // live notifications
		nil, // gatherer
		o.Registerer,
		nil,        // renderer of query statistics
		false, nil, // remote write
		false, false, false, // OTLP
		false, // zero samples at start timestamps
		o.Engine.lookback,
		false, false, // type and unit labels, metadata
		// The features are not part of buildinfo, because Grafana takes a server for Mimir if its
		// buildinfo has features.
		statusOf, newFeatures(o.Engine.parser),
		// Prometheus renders a description of the API at once, which we do not serve. Without paths, that takes half of
		// the time and of the garbage.
		v1.OpenAPIOptions{IncludePaths: []string{"/openapi.yaml"}},
		o.Engine.parser,
	)
	prometheus.ClearCodecs()
	prometheus.InstallCodec(o.Engine.streams)
	return prometheus
}

// rulesFor returns the rules of the context's tenant.
func (o *Options) rulesFor(ctx context.Context) TenantRules {
	name, _ := tenant.FromContext(ctx) // every request has a tenant: see serve
	return o.Rules(name)
}

// exemplars returns an empty list instead of nil: Prometheus' handler would answer null, which
// is not a list.
type exemplars struct{ storage.ExemplarQueryable }

func (e exemplars) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	q, err := e.ExemplarQueryable.ExemplarQuerier(ctx)
	return exemplarQuerier{q}, err
}

type exemplarQuerier struct{ storage.ExemplarQuerier }

func (q exemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	found, err := q.ExemplarQuerier.Select(start, end, matchers...)
	if found == nil {
		found = []exemplar.QueryResult{}
	}
	return found, err
}
