package promapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/grafana/regexp"
	"github.com/prometheus/prometheus/util/httputil"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// noOrigin is what Prometheus' handlers are told of foreign pages: none may read. Which
// may is decided in front of this API, for all that answers HTTP.
var noOrigin = regexp.MustCompile("^$")

// parameterError is what is wrong with a parameter of a request.
type parameterError string

func (e parameterError) Error() string { return string(e) }

// own makes a handler of a function of ours, which then answers in the way of
// Prometheus' handlers.
func (a *api) own(f func(*http.Request) (any, error)) http.Handler {
	return a.form(httputil.CompressionHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := f(r)
		if _, bad := errors.AsType[parameterError](err); bad {
			refuse(w, r, http.StatusBadRequest, "bad_data", err)
		} else if err != nil {
			refuse(w, r, http.StatusInternalServerError, "internal", err)
		} else {
			respond(w, r, http.StatusOK, &v1.Response{Status: "success", Data: data})
		}
	})})
}

func refuse(w http.ResponseWriter, r *http.Request, status int, errorType string, err error) {
	respond(w, r, status, &v1.Response{Status: "error", ErrorType: errorType, Error: err.Error()})
}

func respond(w http.ResponseWriter, r *http.Request, status int, body *v1.Response) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("BUG: answer %s: %v", r.URL.Path, err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // fails if the client went away, whom nothing can be told
}

// answer remembers whether anything was sent.
type answer struct {
	http.ResponseWriter
	sent bool
}

func (w *answer) WriteHeader(status int) {
	w.sent = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(b []byte) (int, error) {
	w.sent = true
	return w.ResponseWriter.Write(b)
}

// Flush is for the streams of remote read.
func (w *answer) Flush() {
	w.sent = true
	_ = http.NewResponseController(w.ResponseWriter).Flush() // cannot, on a connection that is gone
}

// handlePanic turns a panic outside of the engine into status 500, or, if part of an
// answer was sent, cuts the connection, so that the part does not pass for all.
func (a *api) handlePanic(w *answer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	a.Engine.failed.WithLabelValues(failedPanic).Inc()
	a.Logger.Error("panic in the HTTP API", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	if w.sent {
		panic(http.ErrAbortHandler)
	}
	w.Header().Del("Content-Encoding") // of the compression that the panic cut off
	refuse(w, r, http.StatusInternalServerError, "internal", fmt.Errorf("panic: %v; this is a bug, and the log has the details", p))
}
