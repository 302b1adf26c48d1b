package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxQuery is the limit of a URL's query, in bytes: three short parameters fit.
const maxQuery = 1024

// server answers HTTP requests.
type server struct {
	refresher   *refresher
	metrics     *metrics
	log         *slog.Logger
	logRequests bool
	draining    atomic.Bool
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	route, code := routeOther, http.StatusNotFound
	switch path := r.URL.Path; {
	case path == "/v1/coverage":
		route, code = routeCoverage, s.only(w, r, http.MethodGet, s.coverage)
	case path == "/-/refresh":
		route, code = routeRefresh, s.only(w, r, http.MethodPost, s.refresh)
	case path == "/-/status":
		code = s.only(w, r, http.MethodGet, s.status)
	case path == "/healthy":
		code = s.text(w, http.StatusOK, "healthy\n")
	case path == "/ready":
		code = s.ready(w)
	default:
		s.text(w, code, "not found; try GET /v1/coverage?origin=01001000&destination=20040002\n")
	}
	s.metrics.answered(route, code, time.Since(begun))
}

func (s *server) only(w http.ResponseWriter, r *http.Request, method string,
	handle func(http.ResponseWriter, *http.Request) int) int {
	if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
		return handle(w, r)
	}
	w.Header().Set("Allow", method)
	return s.text(w, http.StatusMethodNotAllowed, "use "+method+"\n")
}

func (s *server) text(w http.ResponseWriter, code int, text string) int {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // an error means that the client has gone
	return code
}

func (s *server) ready(w http.ResponseWriter) int {
	switch {
	case s.draining.Load():
		return s.text(w, http.StatusServiceUnavailable, "draining\n")
	case s.refresher.current.Load() == nil:
		return s.text(w, http.StatusServiceUnavailable, "loading the first index\n")
	}
	return s.text(w, http.StatusOK, "ready\n")
}

// answer is the memory of one request. The next request reuses it.
type answer struct {
	offers []offer
	body   []byte
}

var (
	answers  = sync.Pool{New: func() any { return &answer{offers: make([]offer, 0, 64), body: make([]byte, 0, 4096)} }}
	jsonType = []string{"application/json"} // shared by all answers, since Header.Set allocates
)

func (s *server) coverage(w http.ResponseWriter, r *http.Request) (code int) {
	begun := time.Now()
	x := s.refresher.current.Load()
	if x == nil {
		w.Header().Set("Retry-After", "5")
		return s.text(w, http.StatusServiceUnavailable, "loading the first index\n")
	}
	a := answers.Get().(*answer)
	defer func() {
		if cap(a.body) <= 64<<10 && cap(a.offers) <= 4096 { // do not keep the memory of a huge answer
			answers.Put(a)
		}
	}()
	q, problems := parseQuery(r.URL.RawQuery)
	a.offers, a.body = a.offers[:0], a.body[:0]
	if len(problems) > 0 {
		code, a.body = http.StatusBadRequest, appendProblems(a.body, problems)
	} else {
		code, a.offers = http.StatusOK, x.answer(a.offers, q)
		a.body = x.appendJSON(a.body, a.offers)
	}
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(code)
	_, _ = w.Write(a.body) // an error means that the client has gone
	if s.logRequests {
		// A record holds five attributes without an allocation.
		s.log.LogAttrs(r.Context(), slog.LevelInfo, "coverage asked", slog.Int("code", code), slog.String("origin", q.origin),
			slog.String("destination", q.destination), slog.Int("offers", len(a.offers)),
			slog.Duration("took", time.Since(begun)))
	}
	return code
}

// query are the parameters of a request.
type query struct {
	origin, destination, carrier string
	from, to                     uint32 // origin and destination
}

// problem describes a wrong parameter, with its limit and the fix.
type problem struct{ field, value, limit, fix string }

// parseQuery reads the parameters. url.ParseQuery would allocate a map for each request.
func parseQuery(raw string) (q query, problems []problem) {
	if len(raw) > maxQuery {
		return q,
			[]problem{{"query", strconv.Itoa(len(raw)) + " bytes", strconv.Itoa(maxQuery) + " bytes",
				"send only origin, destination and optionally carrier"}}
	}
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		if strings.ContainsAny(value, "%+") {
			plain, err := url.QueryUnescape(value)
			if err != nil {
				problems = append(problems, problem{name, value, "a URL's encoding", "write % as %25"})
				continue
			}
			value = plain
		}
		switch name {
		case "origin":
			q.origin = value
		case "destination":
			q.destination = value
		case "carrier":
			q.carrier = value
		}
	}
	const digits, example = "a postal code of 8 digits", "write it with its leading zeros and without a dash: 01001000"
	var err error
	if q.from, err = parseCode(q.origin); err != nil {
		problems = append(problems, problem{"origin", q.origin, digits, example})
	}
	if q.to, err = parseCode(q.destination); err != nil {
		problems = append(problems, problem{"destination", q.destination, digits, example})
	}
	if len(q.carrier) > maxName {
		problems = append(problems,
			problem{"carrier", q.carrier, strconv.Itoa(maxName) + " bytes", "send the name of one carrier, or none for all"})
	}
	return q, problems
}

// answer looks up the offers for a query. For an unknown carrier there are no offers.
func (x *index) answer(offers []offer, q query) []offer {
	carrier := uint16(anyCarrier)
	if q.carrier != "" {
		var known bool
		if carrier, known = x.numbers[q.carrier]; !known {
			return offers
		}
	}
	return x.lookup(offers, q.from, q.to, carrier)
}

// appendJSON appends offers as JSON, without reflection. The names are already quoted.
func (x *index) appendJSON(b []byte, offers []offer) []byte {
	b = append(b, '[')
	for i, o := range offers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"carrier":`...), x.carriers[o.carrier]...)
		b = append(append(b, `,"service":`...), x.services[o.service]...)
		b = strconv.AppendUint(append(b, `,"days":`...), uint64(o.days), 10)
		b = strconv.AppendUint(append(b, `,"price_cents":`...), uint64(o.priceCents), 10)
		b = append(b, '}')
	}
	return append(b, ']', '\n')
}

func (s *server) refresh(w http.ResponseWriter, r *http.Request) (code int) {
	done := s.refresher.ask(r.Context())
	var b []byte
	if done.err == nil {
		code = http.StatusOK
		b = fmt.Appendf(b, `{"documents":%d,"refused":%d,"seconds":%.3f}`, done.documents, done.refused, done.took.Seconds())
	} else {
		code = http.StatusInternalServerError
		if errors.Is(done.err, errBusy) {
			code = http.StatusConflict
		}
		b = append(appendString(append(b, `{"error":`...), done.err.Error()), '}')
	}
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n')) // an error means that the client has gone
	return code
}

// status answers /-/status, for people and for bench. It needs no metrics server.
func (s *server) status(w http.ResponseWriter, _ *http.Request) int {
	documents, bytes := 0, 0
	if x := s.refresher.current.Load(); x != nil {
		documents, bytes = len(x.rows), x.bytes()
	}
	var gc pauseReader // a new pauseReader reads all pauses since the start
	p := gc.read()
	b := fmt.Appendf(nil,
		`{"documents":%d,"index_bytes":%d,"heap_bytes":%d,"gc_pauses":%d,"gc_pauses_over_1ms":%d,"gc_pause_max_seconds":%g}`+
			"\n",
		documents, bytes, heapBytes(), p.count, p.overMillisecond, p.longest)
	w.Header()["Content-Type"] = jsonType
	_, _ = w.Write(b) // an error means that the client has gone
	return http.StatusOK
}

func appendProblems(b []byte, problems []problem) []byte {
	b = append(b, `{"errors":[`...)
	for i, p := range problems {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"field":`...), p.field)
		b = appendString(append(b, `,"value":`...), p.value[:min(len(p.value), maxName)])
		b = appendString(append(b, `,"limit":`...), p.limit)
		b = append(appendString(append(b, `,"fix":`...), p.fix), '}')
	}
	return append(b, `]}`+"\n"...)
}

// appendString appends a string as JSON.
func appendString(b []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("BUG: %q as JSON: %v", s, err))
	}
	return append(b, quoted...)
}
