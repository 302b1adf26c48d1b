package promapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/core/catalogue"
)

// TestGuard sends queries that make Prometheus crash or hang to every endpoint that parses
// PromQL.
func TestGuard(t *testing.T) {
	s := newServer(database(t))
	const n = 100_000
	nested := strings.Repeat("(", n) + "1" + strings.Repeat(")", n)
	const (
		tooDeep = "the query is 100001 levels deep; the limit is 500 (query.max_query_depth)"
		tooFine = "with [1000d:1ms] the query's subqueries take 864000"
		tooLong = "bytes long; the limit is 262144 (query.max_query_bytes)"
	)
	type attack struct{ why, query, want string }
	texts := []attack{
		{"nested parentheses", nested, tooDeep},
		{"unclosed braces", strings.Repeat("{", n), "unexpected left brace"},
		{"signs", strings.Repeat("-", n) + "1", tooDeep},
		{"a chain", strings.Repeat("1+", n) + "1", tooDeep},
		{"long", `{a="` + strings.Repeat("x", 256<<10) + `"}`, tooLong},
	}
	runs := append(texts, attack{"a subquery of 691 GB", "count_over_time(vector(1)[1000d:1ms])", tooFine},
		attack{
			"a subquery in a subquery", "max_over_time(max_over_time(rate(x[1m])[1000d:1s])[1d:1m])", "max_subquery_steps",
		},
		attack{"a step of nothing", "max_over_time(x[1d:0.0001])", "below 1ms"})
	for _, c := range []struct {
		path, parameter string
		attacks         []attack
		others          url.Values
	}{
		{"query", "query", runs, url.Values{"time": {"4"}}},
		{"query_range", "query", runs, url.Values{"start": {"0"}, "end": {"10"}, "step": {"1"}}},
		{"query_exemplars", "query", texts, nil},
		{"parse_query", "query", texts, nil},
		{"series", "match[]", texts, nil},
		{"labels", "match[]", texts, nil},
		{"label/code/values", "match[]", texts, nil},
		{"rules", "match[]", texts, nil},
		{"targets/metadata", "match_target", texts, nil},
	} {
		for _, a := range c.attacks {
			form := url.Values{c.parameter: {a.query}}
			for k, v := range c.others {
				form[k] = v
			}
			for _, r := range []*http.Request{get(prefix+"/"+c.path, form), post(prefix+"/"+c.path, form)} {
				start := time.Now()
				w := s.ask(r)
				took := time.Since(start)
				if w.Code == http.StatusMethodNotAllowed {
					continue // TestRoutes checks the methods
				}
				e := decode(t, w)
				if w.Code != http.StatusBadRequest || e.ErrorType != "bad_data" || !strings.Contains(e.Error, a.want) {
					t.Errorf("%s: %s %s: status %d %s %.200q, want %q", a.why, r.Method, c.path, w.Code, e.ErrorType, e.Error, a.want)
				}
				// A refusal takes milliseconds; the longer limit allows for a busy machine.
				if took > 20*time.Second {
					t.Errorf("%s: %s %s took %v", a.why, r.Method, c.path, took)
				}
			}
		}
	}
	if got := s.failures(t, failedLimit); got < 60 {
		t.Errorf("%v refused queries were counted, want at least 60", got)
	}
}

// The engine evaluates this query in milliseconds; printing it would take seconds.
func TestFormatIsLimitedFurther(t *testing.T) {
	s := newServer(database(t))
	deep := strings.Repeat("(", 400) + "x" + strings.Repeat(")", 400)
	if w := s.ask(post(prefix+"/query", url.Values{"query": {deep}})); w.Code != http.StatusOK {
		t.Errorf("the engine refuses a query of 400 levels: status %d", w.Code)
	}
	for _, c := range []struct{ query, want string }{
		{deep, "401 levels deep; at most 16384 bytes and 100 levels can be formatted"},
		{`{a="` + strings.Repeat("x", 17_000) + `"}`, "the query is 17006 bytes long and 2 levels deep"},
	} {
		for _, r := range []*http.Request{get(prefix+"/format_query", url.Values{"query": {c.query}}),
			post(prefix+"/format_query", url.Values{"query": {c.query}})} {
			w := s.ask(r)
			if e := decode(t, w); w.Code != http.StatusBadRequest || !strings.Contains(e.Error, c.want) {
				t.Errorf("%s: status %d %.200q, want %q", r.Method, w.Code, e.Error, c.want)
			}
		}
	}
}

func TestBodies(t *testing.T) {
	s := newServer(database(t), func(cfg *Config, _ *Options) { cfg.MaxQueryBytes = 1000 })
	form := func(contentType, body string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, prefix+"/query", strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		return r
	}
	var parts bytes.Buffer
	m := multipart.NewWriter(&parts)
	_ = m.WriteField("query", strings.Repeat("(", 1000))
	_ = m.Close()
	for _, c := range []struct {
		why    string
		r      *http.Request
		status int
		want   string
	}{
		{"the longest query, each byte escaped",
			form("application/x-www-form-urlencoded", "query=1"+strings.Repeat("%20", 999)), 200, ""},
		{"a byte more", form("application/x-www-form-urlencoded", "query=1"+strings.Repeat("%20", 1000)), 400,
			"1001 bytes long"},
		{"a body without end", form("application/x-www-form-urlencoded", "query=1"+strings.Repeat("%20", 100_000)), 413,
			"longer than 68536 bytes"},
		{"another kind of form is guarded, too", form(m.FormDataContentType(), parts.String()), 400, "1001 levels deep"},
		{"half an escape", form("application/x-www-form-urlencoded", "query=1%2"), 400, "read the parameters"},
		{"not a form", form("application/json", `{"query":"1"}`), 400, "no expression found"},
	} {
		w := s.ask(c.r)
		if e := decode(t, w); w.Code != c.status || !strings.Contains(e.Error, c.want) {
			t.Errorf("%s: status %d %s, want %d %s", c.why, w.Code, e.Error, c.status, c.want)
		}
	}
}

func TestTooManySamples(t *testing.T) {
	s := newServer(database(t), func(cfg *Config, _ *Options) { cfg.MaxSamples = 100 })
	w := s.ask(get(prefix+"/query", url.Values{"query": {"max_over_time(vector(1)[1000s:1s])"}}))
	if e := decode(t, w); w.Code != http.StatusUnprocessableEntity || e.ErrorType != "execution" ||
		!strings.Contains(e.Error, "too many samples") {
		t.Errorf("status %d, %+v", w.Code, e)
	}
}

// TestTimeAndConcurrency has one slot, and a storage that waits for the test before it
// answers.
func TestTimeAndConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		s := newServer(selects(func(ctx context.Context) storage.SeriesSet {
			select {
			case <-answer:
				return storage.EmptySeriesSet()
			case <-ctx.Done():
				return storage.ErrSeriesSet(ctx.Err())
			}
		}), func(cfg *Config, _ *Options) { cfg.MaxConcurrency, cfg.Timeout = 1, time.Minute })
		type reply struct {
			status int
			envelope
			took time.Duration
		}
		ask := func(ctx context.Context, form url.Values) <-chan reply {
			c := make(chan reply, 1)
			start := time.Now()
			go func() {
				w := s.ask(post(prefix+"/query", form).WithContext(ctx))
				c <- reply{w.Code, decode(t, w), time.Since(start)}
			}()
			synctest.Wait() // the query runs or waits for the slot
			return c
		}
		background := context.Background()
		first := ask(background, url.Values{"query": {"x"}})
		waiting := <-ask(background, url.Values{"query": {"1"}, "timeout": {"10s"}})
		if waiting.status != http.StatusServiceUnavailable || waiting.ErrorType != "timeout" ||
			waiting.took != 10*time.Second ||
			waiting.Error !=
				"query timed out in the queue of the tenant: 2 short queries run at once (one more than query.max_concurrency)" {
			t.Errorf("a query that waits longer than its own timeout got the answer %+v", waiting)
		}
		gone, leave := context.WithCancel(background)
		left := ask(gone, url.Values{"query": {"1"}})
		leave()
		if r := <-left; r.status != 499 || r.ErrorType != "canceled" {
			t.Errorf("a client that went away while it waited got the answer %+v", r)
		}
		second := ask(background, url.Values{"query": {"1"}})
		answer <- struct{}{}
		if r := <-first; r.status != http.StatusOK {
			t.Errorf("the first: %+v", r)
		}
		if r := <-second; r.status != http.StatusOK {
			t.Errorf("after the first query ended, the second got the answer %+v", r)
		}
		if r := <-ask(background, url.Values{"query": {"x"}}); r.status != http.StatusServiceUnavailable ||
			r.ErrorType != "timeout" || r.took != time.Minute {
			t.Errorf("a query that the storage does not answer got %+v, want a timeout after 1m", r)
		}
		if got := s.failures(t, failedTimeout); got != 2 {
			t.Errorf("%v timeouts were counted, want 2", got)
		}
	})
}

// A query in columns times out before the next series, with the answer of a query in the engine.
func TestTimeoutInColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read int
		s := newServer(selects(func(context.Context) storage.SeriesSet {
			return &slowSamples{slowSet{n: 100}, &read}
		}), func(cfg *Config, _ *Options) { cfg.Timeout = time.Minute })
		ask := func(query string) (answer string) {
			read = 0
			w := s.ask(instant(query))
			return fmt.Sprintf("status %d after %d series: %s", w.Code, read, decode(t, w).Error)
		}
		want := ask("stddev(x)") // which the engine evaluates
		if want != "status 503 after 9 series: query timed out in expression evaluation" {
			t.Error(want)
		}
		for _, query := range []string{"sum(x)", "sum(count_over_time(x[1m]))", "count_over_time(x[1m])"} {
			if got := ask(query); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
		s.nothingHeld(t)
	})
}

// slowSamples are series whose samples take 7 seconds each to read.
type slowSamples struct {
	slowSet
	read *int
}

func (s *slowSamples) At() storage.Series { return slowSeries{s.slowSet.At(), s.read} }

type slowSeries struct {
	storage.Series
	read *int
}

func (s slowSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	*s.read++
	<-time.After(7 * time.Second)
	return s.Series.Iterator(it)
}

func TestPanics(t *testing.T) {
	var nothing *catalogue.Metric
	for _, c := range []struct {
		why, path string
		storage   selects
		metadata  MetadataSource
	}{
		{"while series are selected, where the engine recovers nothing", "/query?query=x",
			func(context.Context) storage.SeriesSet { panic("no such page") }, nil},
		{"during evaluation, where the engine takes it for a mistake in the query", "/query?query=x",
			func(context.Context) storage.SeriesSet { return broken{} }, nil},
		{"outside of the engine", "/series?match[]=x",
			func(context.Context) storage.SeriesSet { return broken{} }, nil},
		{"in a handler of ours", "/metadata", nil, metadataFunc(func(string) []catalogue.Metric {
			return []catalogue.Metric{*nothing}
		})},
	} {
		s := newServer(c.storage, func(_ *Config, o *Options) { o.Metadata = c.metadata })
		r := httptest.NewRequest(http.MethodGet, prefix+c.path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		w := s.ask(r)
		text := unzip(t, w)
		if w.Code != http.StatusInternalServerError || !strings.Contains(text, `"errorType":"internal"`) ||
			!strings.Contains(text, "this is a bug") {
			t.Errorf("%s: status %d %s", c.why, w.Code, text)
		}
		if got := s.failures(t, failedPanic); got != 1 {
			t.Errorf("%s: %v panics were counted, want 1", c.why, got)
		}
	}
}

// After a panic the server cuts the connection, so that the client notices that the
// answer is incomplete.
func TestPanicInAStream(t *testing.T) {
	a := &api{Options: newServer(nil).options}
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recovered %v, want http.ErrAbortHandler", p)
		}
	}()
	w := &answer{ResponseWriter: httptest.NewRecorder()}
	defer a.handlePanic(w, httptest.NewRequest(http.MethodPost, prefix+"/read", nil))
	_, _ = w.Write([]byte("a part"))
	panic("of the rest")
}

type metadataFunc func(string) []catalogue.Metric

func (f metadataFunc) Metadata(name string) []catalogue.Metric { return f(name) }

// broken is a set of series that panics when it is read.
type broken struct{ storage.SeriesSet }

func TestErrorsOfTheStorage(t *testing.T) {
	s := newServer(selects(func(context.Context) storage.SeriesSet {
		return storage.ErrSeriesSet(errors.New("read block 01J9: checksum mismatch"))
	}))
	w := s.ask(get(prefix+"/query", url.Values{"query": {"x"}}))
	if e := decode(t, w); w.Code != http.StatusUnprocessableEntity || !strings.Contains(e.Error, "checksum mismatch") {
		t.Errorf("status %d, %+v", w.Code, e)
	}
}

func TestConfig(t *testing.T) {
	if problems := DefaultConfig().Validate(); problems != nil {
		t.Errorf("the default: %v", problems)
	}
	if problems := (Config{}).Validate(); len(problems) != 8 {
		t.Errorf("8 settings that allow no query: got %d problems, want one of each setting: %v",
			len(problems), problems)
	}
	deep := DefaultConfig()
	deep.MaxQueryDepth = 2001
	if problems := deep.Validate(); len(problems) != 1 || problems[0].Key != "max_query_depth" {
		t.Errorf("a depth that is too large for the parser: got the problems %v, want one of max_query_depth", problems)
	}
}
