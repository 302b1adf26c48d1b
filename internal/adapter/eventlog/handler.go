package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/boltfile"
)

const (
	// maxLimit bounds the memory of an answer: 10,000 events of 1 kB are 10 MB.
	maxLimit = 10_000

	// maxForm bounds the body of a POST, in bytes.
	maxForm = 1 << 20
)

// envelope wraps each answer as Prometheus' HTTP API does.
type envelope struct {
	Status    string         `json:"status"`
	Data      []answer.Event `json:"data,omitzero"`
	ErrorType string         `json:"errorType,omitempty"`
	Error     string         `json:"error,omitempty"`
	Warnings  []string       `json:"warnings,omitempty"`
}

// Current waits until the log has all of a tenant's events that any node has acknowledged. If it fails,
// the error says since when events may be missing.
type Current func(ctx context.Context, tenant string) error

// Handler answers GET and POST with the events that match the parameters start, end, tag, text and
// limit. The tenant comes from the request's context. If `current` fails, the answer is 503. With the
// parameter partial_response=true, the answer then has a warning and the events that the log has.
func (l *Log) Handler(current Current) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.serve(w, r, current) })
}

func (l *Log) serve(w http.ResponseWriter, r *http.Request, current Current) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		respond(w, http.StatusMethodNotAllowed,
			envelope{ErrorType: "bad_data", Error: "method " + r.Method + " is not allowed; use GET or POST"})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	f, err := parseFilter(r)
	if err != nil {
		respond(w, http.StatusBadRequest, envelope{ErrorType: "bad_data", Error: err.Error()})
		return
	}
	name, ok := tenant.FromContext(r.Context())
	if !ok {
		respond(w, http.StatusInternalServerError, envelope{ErrorType: "internal", Error: "BUG: the request has no tenant"})
		return
	}
	f.Tenant = name
	a := envelope{Data: []answer.Event{}}
	if err := current(r.Context(), name); err != nil {
		if accepted, _ := strconv.ParseBool(r.Form.Get("partial_response")); !accepted {
			respond(w, http.StatusServiceUnavailable, envelope{ErrorType: "unavailable", Error: err.Error()})
			return
		}
		a.Warnings = append(a.Warnings, err.Error())
	}
	limit := f.Limit
	f.Limit++ // one extra event shows that there are more
	found, err := l.Query(r.Context(), f)
	if _, damaged := errors.AsType[*boltfile.DamageError](err); damaged { // another node may have the events
		respond(w, http.StatusServiceUnavailable, envelope{ErrorType: "unavailable", Error: err.Error()})
		return
	}
	if err != nil {
		respond(w, http.StatusInternalServerError, envelope{ErrorType: "internal", Error: err.Error()})
		return
	}
	if len(found) > limit {
		found = found[:limit]
		a.Warnings = append(a.Warnings, "results truncated due to limit")
	}
	for i := range found {
		a.Data = append(a.Data, toJSON(&found[i]))
	}
	respond(w, http.StatusOK, a)
}

func toJSON(r *Event) answer.Event {
	return answer.Event{
		ID: strconv.FormatUint(r.ID, 10), Time: float64(r.Time) / 1000, Title: r.Title, Text: r.Text,
		Tags: append([]string{}, r.Tags...), Host: r.Host, Alert: r.Alert, Priority: r.Priority,
		Source: r.Source, Key: r.Key,
	}
}

func respond(w http.ResponseWriter, code int, a envelope) {
	a.Status = "success"
	if code != http.StatusOK {
		a.Status = "error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(a) // an error means that the client has gone
}

func parseFilter(r *http.Request) (f Filter, err error) {
	if err := r.ParseForm(); err != nil {
		return f, fmt.Errorf("parse the form: %w", err)
	}
	if f.Start, err = parseTime(r, "start", math.MinInt64); err != nil {
		return f, err
	}
	if f.End, err = parseTime(r, "end", math.MaxInt64); err != nil {
		return f, err
	}
	if f.End < f.Start {
		return f, errors.New(`invalid parameter "end": it is before start`)
	}
	f.Tags, f.Text, f.Limit = r.Form["tag"], r.Form.Get("text"), DefaultLimit
	if s := r.Form.Get("limit"); s != "" {
		if f.Limit, err = strconv.Atoi(s); err != nil || f.Limit < 1 || f.Limit > maxLimit {
			return f, fmt.Errorf(`invalid parameter "limit": %.80q is not a number from 1 to %d`, s, maxLimit)
		}
	}
	return f, nil
}

// maxSeconds is the largest time that fits Unix milliseconds, with room to spare.
const maxSeconds = 1e15

// parseTime reads a time in Prometheus' notation and returns Unix milliseconds. If the parameter is
// absent, it returns `missing`.
func parseTime(r *http.Request, name string, missing int64) (int64, error) {
	s := r.Form.Get(name)
	if s == "" {
		return missing, nil
	}
	if seconds, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(seconds) <= maxSeconds {
		return int64(math.Round(seconds * 1000)), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t.UnixMilli(), nil
	}
	return 0,
		fmt.Errorf(`invalid parameter %q: cannot parse %.80q to a valid timestamp; give Unix seconds or RFC 3339`, name, s)
}
