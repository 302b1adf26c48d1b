package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/grafana/regexp"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/lib/turns"
)

// noOrigin makes Prometheus' handlers allow no other origin. A handler in front of this API decides
// about origins for all HTTP requests.
var noOrigin = regexp.MustCompile("^$")

// parameterError is the error of an invalid parameter of a request.
type parameterError string

func (e parameterError) Error() string { return string(e) }

// statusOf returns the status of errors that Prometheus does not know. A gateway asks another node after a 503.
func statusOf[number any](_ number, err error) (int, bool) {
	if errors.Is(err, partial.ErrElsewhere) {
		return http.StatusServiceUnavailable, true
	}
	return http.StatusTooManyRequests, errors.Is(err, turns.ErrFull)
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
	_, _ = w.Write(text) // an error means that the client has gone
}

// A client must read its answer, because the result stays in memory until it is read. The client may
// take answerGrace to read the first byte. Then it must read answerRate bytes a second on average: 2
// Mbit/s, a tenth of a slow line.
const (
	answerGrace = 30 * time.Second
	answerRate  = 256 << 10
)

// answer is an answer on its way to the client. It remembers whether anything was sent, and
// cuts off a client that does not read.
type answer struct {
	http.ResponseWriter
	sent    bool
	body    io.Writer // takes what streams write, and compresses it if the client wants that: see compressed
	turn    *turn     // gives its slot back when the answer begins; nil if the request has no turn
	begun   time.Time
	written int64
	cut     bool // whether the client read too slowly and was cut off
	asker   querycost.Asker
	noCache bool // the request wants no step from an earlier answer

	elsewhere bool // another node can answer: Prometheus' remote read has status 500 for that
}

func newAnswer(w http.ResponseWriter, asker querycost.Asker) *answer {
	a := &answer{ResponseWriter: w, asker: asker}
	a.body = a
	return a
}

// fresh reports whether all steps of the answer must be evaluated. The answer is nil for Freshet's own queries.
func (w *answer) fresh() bool { return w != nil && w.noCache }

// WriteHeader does nothing once something was sent: Prometheus' handler calls it after streams.Encode, too.
func (w *answer) WriteHeader(status int) {
	if w.sent {
		return
	}
	if w.elsewhere && status == http.StatusInternalServerError {
		status = http.StatusServiceUnavailable
	}
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// begin is called before anything is sent. It gives the slot back: writing may wait for the client,
// and no slot must be held meanwhile.
func (w *answer) begin() {
	if !w.sent {
		w.sent, w.begun = true, time.Now()
		if w.turn != nil {
			w.turn.stop()
		}
	}
}

func (w *answer) Write(b []byte) (n int, err error) {
	w.begin()
	for first := true; first || len(b) > 0; first = false {
		part := b[:min(len(b), piece)]
		w.extend() // each part moves the deadline
		wrote, err := w.ResponseWriter.Write(part)
		n += wrote
		w.written += int64(wrote)
		if err != nil {
			w.cut = w.cut || errors.Is(err, os.ErrDeadlineExceeded)
			return n, err
		}
		b = b[wrote:]
		runtime.Gosched() // compressing a long answer takes as much CPU time as a query
	}
	return n, nil
}

// extend moves the write deadline: to answerGrace after the answer began, plus the time that a client at
// answerRate needs for `written` bytes.
func (w *answer) extend() {
	end := w.begun.Add(answerGrace + time.Duration(w.written)*time.Second/answerRate)
	// This fails without a connection, as in tests of handlers. net/http resets the deadline after
	// the request.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(end)
}

// Flush is for the streams of remote read.
func (w *answer) Flush() {
	w.begin()
	w.extend()
	err := http.NewResponseController(w.ResponseWriter).Flush() // fails on a closed connection
	w.cut = w.cut || errors.Is(err, os.ErrDeadlineExceeded)
}

// Unwrap is for http.ResponseController.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// answerKey is the context key of a request's answer.
type answerKey struct{}

func withAnswer(ctx context.Context, w *answer) context.Context {
	return context.WithValue(ctx, answerKey{}, w)
}

func answerOf(ctx context.Context) *answer {
	w, _ := ctx.Value(answerKey{}).(*answer)
	return w
}

// Reasons under which failed queries are counted.
const (
	failedLimit   = "limit"
	failedTimeout = "timeout"
	failedPanic   = "panic"
	failedMemory  = "memory"
	failedQueue   = "queue"
	failedSlow    = "slow_client"
)
