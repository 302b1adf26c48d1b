package promapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/util/httputil"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/core/promqlguard"
	"github.com/freshet-io/freshet/internal/core/querycost"
)

// register lists our routes. It leaves out Prometheus' routes that write, administer, or make no
// sense without scraping.
func (a *api) register() {
	form := []string{http.MethodGet, http.MethodPost}
	get := []string{http.MethodGet}
	post := []string{http.MethodPost}
	for _, route := range []struct {
		methods []string
		path    string
		handler http.Handler
	}{
		{form, "/query", a.form(compressed(a.prometheus))},
		{form, "/query_range", a.form(compressed(a.prometheus))},
		{form, "/query_exemplars", a.form(a.lookup(a.prometheus))},
		{form, "/format_query", a.form(printable(a.prometheus))},
		{form, "/parse_query", a.form(a.prometheus)},
		{form, "/labels", a.form(a.lookup(a.prometheus))},
		{form, "/series", a.form(a.lookup(a.prometheus))},
		{get, "/label/{name}/values", a.form(a.lookup(labelPath(a.prometheus)))},
		{get, "/metadata", a.own(a.metadata)},

		{get, "/rules", a.form(a.prometheus)},
		{get, "/alerts", a.form(a.prometheus)},
		{get, "/alertmanagers", a.form(a.prometheus)},
		{get, "/targets", a.form(a.prometheus)},
		{get, "/targets/metadata", a.form(a.prometheus)},
		{get, "/scrape_pools", a.form(a.prometheus)},

		{get, "/status/buildinfo", a.form(a.prometheus)},
		{get, "/status/runtimeinfo", a.form(a.prometheus)},
		{get, "/status/flags", a.form(a.prometheus)},
		{get, "/status/config", a.own(a.configuration)},
		{get, "/status/tsdb", a.own(a.stats)},
		{get, "/status/cardinality", a.own(a.cardinality)},
		{get, "/status/walreplay", a.own(walReplay)},

		{get, "/features", a.form(a.prometheus)},
		{get, "/notifications", a.form(a.prometheus)},

		{post, "/read", a.body(a.lookup(a.prometheus))},
	} {
		for _, method := range route.methods {
			a.routes.Handle(method+" "+prefix+route.path, route.handler)
		}
		a.routes.HandleFunc(prefix+route.path, func(w http.ResponseWriter, r *http.Request) {
			allowed := strings.Join(route.methods, ", ")
			w.Header().Set("Allow", allowed)
			refuse(w, r, http.StatusMethodNotAllowed, "bad_data",
				fmt.Errorf("%s takes %s, not %s", r.URL.Path, allowed, r.Method))
		})
	}
	a.routes.Handle("GET "+federatePath, a.form(a.lookup(http.HandlerFunc(a.federate))))
	a.routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusNotFound, "not_found", fmt.Errorf("there is no %s here", r.URL.Path))
	})
}

// compressed compresses answers in place of Prometheus' handler, whose compressor is out of reach of streams.
func compressed(next http.Handler) http.Handler {
	return httputil.CompressionHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Accept-Encoding")
		answerOf(r.Context()).body = w
		next.ServeHTTP(w, r)
	})}
}

// own returns a handler for f, one of our own functions: the handler calls f, and answers in the form of
// Prometheus' handlers.
func (a *api) own(f func(*http.Request) (any, error)) http.Handler {
	return a.form(httputil.CompressionHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := f(r)
		if _, bad := errors.AsType[parameterError](err); bad {
			refuse(w, r, http.StatusBadRequest, "bad_data", err)
		} else if errors.Is(err, errCardinalityBusy) {
			refuse(w, r, http.StatusServiceUnavailable, "unavailable", err)
		} else if err != nil {
			refuse(w, r, http.StatusInternalServerError, "internal", err)
		} else {
			respond(w, r, http.StatusOK, &v1.Response{Status: "success", Data: data})
		}
	})})
}

// formLimit returns the maximum length of a body in bytes: a byte of a query can take three bytes
// in a form, and all other parameters may take 64 KiB.
func (a *api) formLimit() int64 { return int64(3*a.Engine.limits.Bytes + 64<<10) }

// form reads the parameters of a request into r.Form, where handlers find them. It bounds the body.
// An unreadable body is an error. Prometheus' handlers would use the readable part.
func (a *api) form(next http.Handler) http.Handler {
	limit := a.formLimit()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		err := r.ParseForm()
		if err == nil { // ParseMultipartForm does not return the error of a URL-encoded form
			err = r.ParseMultipartForm(limit)
		}
		switch tooLarge, ok := errors.AsType[*http.MaxBytesError](err); {
		case ok:
			refuse(w, r, http.StatusRequestEntityTooLarge, "bad_data",
				fmt.Errorf("the body is longer than %d bytes", tooLarge.Limit))
		case err != nil && !errors.Is(err, http.ErrNotMultipart):
			refuse(w, r, http.StatusBadRequest, "bad_data", fmt.Errorf("read the parameters: %w", err))
		case checkParameters(w, r):
		default:
			if accepted, _ := strconv.ParseBool(r.Form.Get("partial_response")); accepted {
				r = r.WithContext(partial.NewContext(r.Context()))
			}
			answerOf(r.Context()).noCache, _ = strconv.ParseBool(r.Form.Get("nocache"))
			next.ServeHTTP(w, r)
		}
	})
}

// lookup makes each request that does not use the engine wait for a turn. A request keeps its turn until
// the client has read the answer, because a stream is produced while it is read.
func (a *api) lookup(next http.Handler) http.Handler {
	lanes := a.Engine.lanes
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		costing := a.Engine.costing(r.Context(), querycost.Query{Text: lookupText(r), Lookup: true})
		defer costing.end()
		t, err := lanes.enter(r.Context(), lanes.lookup)
		if err != nil {
			err = a.Engine.notEntered(err, lanes.lookup)
			a.Engine.count(err)
			costing.failed()
			if status, full := statusOf(0, err); full {
				refuse(w, r, status, "execution", err)
			} else {
				refuse(w, r, http.StatusServiceUnavailable, "timeout", err)
			}
			return
		}
		costing.hasTurn()
		defer func() {
			t.close()
			costing.add(t)
		}()
		next.ServeHTTP(w, r.WithContext(withTurn(r.Context(), t)))
	})
}

// body reads the body of a request before the request waits for a turn, and bounds it.
func (a *api) body(next http.Handler) http.Handler {
	limit := a.formLimit()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		switch tooLarge, ok := errors.AsType[*http.MaxBytesError](err); {
		case ok:
			refuse(w, r, http.StatusRequestEntityTooLarge, "bad_data",
				fmt.Errorf("the body is longer than %d bytes", tooLarge.Limit))
		case err != nil:
			refuse(w, r, http.StatusBadRequest, "bad_data", fmt.Errorf("read the request: %w", err))
		default:
			r.Body = io.NopCloser(bytes.NewReader(text))
			next.ServeHTTP(w, r)
		}
	})
}

// Bounds of a query that can be formatted. To find line breaks, the printer prints the rest of the tree
// again at each level. A tree of 1000 levels takes seconds, a tree within these bounds a tenth of a
// second.
const (
	maxPrintBytes = 16 << 10
	maxPrintDepth = 100
)

func printable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		if len(query) > maxPrintBytes || promqlguard.Depth(query) > maxPrintDepth {
			refuse(w, r, http.StatusBadRequest, "bad_data", fmt.Errorf(
				"the query is %d bytes long and %d levels deep; at most %d bytes and %d levels can be formatted",
				len(query), promqlguard.Depth(query), maxPrintBytes, maxPrintDepth))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// labelPath escapes a label's name in the path, because Prometheus' router would split the path
// at a slash in the name.
func labelPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.PathValue("name"); strings.Contains(name, "/") {
			r = r.Clone(r.Context())
			r.URL.Path = prefix + "/label/" + model.EscapeName(name, model.ValueEncodingEscaping) + "/values"
		}
		next.ServeHTTP(w, r)
	})
}
