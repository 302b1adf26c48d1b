package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
)

// standIn answers the loader's requests like Elasticsearch, with the failures that a test sets.
// TestEngine runs the loader against a real Elasticsearch.
type standIn struct {
	documents []string

	fail     func(request int, r *http.Request) (code int, body string) // called first; code 0: do not fail
	mangle   func(*page)                                                // changes an answer that has a page
	product  string
	mu       sync.Mutex
	requests int
	searches int
	opened   int // how many points in time were opened
	open     map[string]bool
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.product != "" {
		w.Header().Set("X-Elastic-Product", s.product)
	}
	if s.fail != nil {
		if code, body := s.fail(s.requests, r); code != 0 {
			w.WriteHeader(code)
			fmt.Fprint(w, body)
			return
		}
	}
	var ask search
	var closing pit
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &ask)
	_ = json.Unmarshal(body, &closing)
	switch r.Method + " " + r.URL.Path {
	case "POST /coverage/_pit":
		s.opened++
		id := fmt.Sprint("pit ", s.opened)
		s.open[id] = true
		fmt.Fprintf(w, `{"id":%q}`, id)
	case "DELETE /_pit":
		delete(s.open, closing.ID)
		fmt.Fprint(w, `{"succeeded":true}`)
	case "POST /_search":
		s.searches++
		if !s.open[ask.PIT.ID] {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"root_cause":[{"type":"search_context_missing_exception"}]}}`)
			return
		}
		s.page(w, ask)
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
}

func (s *standIn) page(w io.Writer, ask search) {
	var after [1]int
	if ask.SearchAfter == nil {
		after[0] = -1
	} else if err := json.Unmarshal(ask.SearchAfter, &after); err != nil {
		panic(err)
	}
	total := 0
	got := page{PIT: ask.PIT.ID}
	for i, text := range s.documents {
		if i%ask.Slice.Max != ask.Slice.ID {
			continue
		}
		total++
		if i > after[0] && len(got.Hits.Hits) < ask.Size {
			got.Hits.Hits = append(got.Hits.Hits, struct {
				ID     string          `json:"_id"`
				Source json.RawMessage `json:"_source"`
				Sort   json.RawMessage
			}{fmt.Sprint(i), json.RawMessage(text), fmt.Appendf(nil, "[%d]", i)})
		}
	}
	if ask.TrackTotalHits {
		got.Hits.Total = &struct {
			Value    int
			Relation string
		}{total, "eq"}
	}
	if s.mangle != nil {
		s.mangle(&got)
	}
	if err := json.NewEncoder(w).Encode(got); err != nil {
		panic(err)
	}
}

// RoundTrip answers requests without a network, so that the test controls time.
func (s *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func numbered(n int) (documents []string) {
	for i := range n {
		documents = append(documents, strings.Replace(good, `"price_cents":1290`, fmt.Sprintf(`"price_cents":%d`, i), 1))
	}
	return documents
}

func TestElasticLoad(t *testing.T) {
	fail := func(code int, body string, when func(request int) bool) func(int, *http.Request) (int, string) {
		return func(request int, _ *http.Request) (int, string) {
			if when(request) {
				return code, body
			}
			return 0, ""
		}
	}
	always := func(int) bool { return true }
	for _, c := range []struct {
		name      string
		with      func(*standIn)
		documents int
		bad       int
		opened    int
		took      time.Duration // shortest time allowed, including waits between tries
		err       string
	}{
		{"all pages of all slices", func(*standIn) {}, 95, 0, 1, 0, ""},
		{"one page", func(s *standIn) { s.documents = s.documents[:3] }, 3, 0, 1, 0, ""},
		{"nothing", func(s *standIn) { s.documents = nil }, 0, 0, 1, 0, ""},
		{"documents that are not valid are counted",
			func(s *standIn) { s.documents[17] = `{"carrier":""}`; s.documents[50] = `[]` }, 93, 2, 1, 0, ""},
		{"too many documents are not valid", func(s *standIn) {
			for i := range 4 {
				s.documents[i] = `{}`
			}
		}, 0, 4, 1, 0, "4 documents are refused, more than --max-refused; the first is document "},
		{"a busy cluster is asked again, later", func(s *standIn) {
			s.fail = fail(429, `{}`, func(request int) bool { return request%3 == 1 })
		}, 95, 0, 1, 100 * time.Millisecond, ""},
		{"a cluster that does not answer for a while", func(s *standIn) {
			s.fail = fail(503, ``, func(request int) bool { return request <= 5 })
		}, 95, 0, 1, 3 * time.Second, ""},
		{"a cluster that never answers",
			func(s *standIn) { s.fail = fail(503, `no master`, always) }, 0, 0, 0, 6 * time.Second,
			"open a point in time of http://es:9200/coverage: 503 Service Unavailable: no master"},
		{"no such index", func(s *standIn) { s.fail = fail(404, `index_not_found_exception`, always) }, 0, 0, 0, 0,
			"404 Not Found: index_not_found_exception"},
		{"no right to read", func(s *standIn) { s.fail = fail(403, `security_exception`, always) }, 0, 0, 0, 0,
			"403 Forbidden"},
		// Pages of two points in time do not fit together, so everything is read again.
		{"the point in time expires once", func(s *standIn) {
			s.fail = func(int, *http.Request) (int, string) {
				if s.searches == 5 && s.opened == 1 {
					clear(s.open)
				}
				return 0, ""
			}
		}, 95, 0, 2, 0, ""},
		{"it expires each time", func(s *standIn) {
			s.fail = func(int, *http.Request) (int, string) { clear(s.open); return 0, "" }
		}, 0, 0, 3, 0, "the point in time is lost"},
		// The status is 200, but documents are missing.
		{"a shard fails",
			func(s *standIn) { s.mangle = func(p *page) { p.Shards.Failed = 1; p.Hits.Hits = p.Hits.Hits[:0] } }, 0, 0, 1, 0,
			"1 shards failed"},
		{"a search is cut short", func(s *standIn) { s.mangle = func(p *page) { p.TimedOut = true } }, 0, 0, 1, 0,
			"timed out: true"},
		{"fewer documents than were counted", func(s *standIn) {
			s.mangle = func(p *page) {
				p.Hits.Hits = p.Hits.Hits[:min(len(p.Hits.Hits), 2)]
				p.Hits.Hits = p.Hits.Hits[:len(p.Hits.Hits)/2*2]
			}
			s.fail = func(int, *http.Request) (int, string) {
				if s.searches > 8 {
					s.mangle = func(p *page) { p.Hits.Hits = nil }
				}
				return 0, ""
			}
		}, 0, 0, 1, 0, "received only"},
		{"another product", func(s *standIn) { s.product = "" }, 0, 0, 1, 0, "the server is no Elasticsearch"},
		{"no JSON", func(s *standIn) { s.fail = fail(200, `<html>`, always) }, 0, 0, 0, 0, "invalid character '<'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &standIn{documents: numbered(95), product: "Elasticsearch", open: map[string]bool{}}
				c.with(s)
				es, err := newElastic("http://es:9200", "", "coverage", elastictransport.WithTransport(s))
				if err != nil {
					t.Fatal(err)
				}
				es.pageSize, es.slices = 7, 3
				into := newSink(3)
				begun := time.Now()
				err = es.load(t.Context(), into)
				if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
					t.Errorf("%v, want %q", err, c.err)
				}
				if err == nil && (len(into.builder.rows) != c.documents || into.bad != c.bad) {
					t.Errorf("loaded %d documents and %d bad ones, want %d and %d",
						len(into.builder.rows), into.bad, c.documents, c.bad)
				}
				prices := map[uint32]bool{}
				for _, r := range into.builder.rows {
					prices[r.priceCents] = true
				}
				if err == nil && len(prices) != c.documents {
					t.Errorf("loaded %d different documents, want %d", len(prices), c.documents)
				}
				if took := time.Since(begun); took < c.took || took > 30*time.Second {
					t.Errorf("the load took %v, want %v to 30s", took, c.took)
				}
				if s.opened != c.opened || len(s.open) != 0 && s.product != "" {
					t.Errorf("%d points in time were opened, want %d; %d are still open", s.opened, c.opened, len(s.open))
				}
			})
		})
	}
}

func TestElasticAddress(t *testing.T) {
	for _, address := range []string{"", "localhost:9200", "http://", "http://x:y:z"} {
		if _, err := newElastic(address, "", "coverage"); err == nil ||
			!strings.Contains(err.Error(), "give it as http://host:9200") {
			t.Errorf("%q: %v", address, err)
		}
	}
	es, err := newElastic("http://me:secret@es:9200", "", "coverage")
	if err != nil || strings.Contains(es.String(), "secret") {
		t.Errorf("got %v, error %v, want an address without the password", es, err)
	}
}

// engine starts a real Elasticsearch, installed by engine/install.
func engine(t *testing.T) (address string) {
	t.Helper()
	home, err := filepath.Abs("../../.cache/engine")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(home, "classes")); err != nil {
		t.Fatalf("Elasticsearch is not installed; run engine/install, or make test: %v", err)
	}
	cmd := exec.Command("java", "-Xmx512m", "-p", filepath.Join(home, "lib"), "--add-modules", "org.elasticsearch.server",
		"-cp", filepath.Join(home, "classes"), "Engine", home, t.TempDir())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe() // the engine ends when the test closes this pipe
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the engine ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("start the engine: %v\n%s", err, errs.String())
	}
	return "http://" + strings.TrimSpace(line)
}

// call sends a request to the engine, without the loader.
func call(t *testing.T, method, url, contentType, body string, into any) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %v\n%s", method, url, answer.Status, err, text)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// The loader reads all documents of a real Elasticsearch: several pages of several slices of several
// shards, also if the point in time is lost between pages.
func TestEngine(t *testing.T) {
	t.Parallel()
	address := engine(t)
	const documents = 5000
	call(t, "PUT", address+"/coverage", "application/json",
		`{"settings":{"number_of_shards":3,"number_of_replicas":0},"mappings":{"dynamic":false}}`, nil)
	var bulk strings.Builder
	for _, text := range numbered(documents) {
		bulk.WriteString(`{"index":{}}` + "\n" + text + "\n")
	}
	bulk.WriteString(`{"index":{}}` + "\n" + `{"carrier":"half"}` + "\n")
	var indexed struct {
		Errors bool
		Items  []json.RawMessage
	}
	call(t, "POST", address+"/coverage/_bulk?refresh=true", "application/x-ndjson", bulk.String(), &indexed)
	if indexed.Errors {
		t.Fatalf("the engine did not accept all documents: %s", cut(indexed.Items))
	}

	load := func(slices int, with http.RoundTripper) {
		t.Helper()
		es, err := newElastic(address, "", "coverage", elastictransport.WithTransport(with))
		if err != nil {
			t.Fatal(err)
		}
		es.pageSize, es.slices = 300, slices
		into := newSink(1)
		into.builder.most = documents
		if err := es.load(t.Context(), into); err != nil {
			t.Fatalf("%d slices: %v", slices, err)
		}
		prices := map[uint32]bool{}
		for _, r := range into.builder.rows {
			prices[r.priceCents] = true
		}
		if len(into.builder.rows) != documents || len(prices) != documents || into.bad != 1 {
			t.Errorf("with %d slices: %d documents, %d different ones, %d bad ones; want %d different ones and one bad",
				slices, len(into.builder.rows), len(prices), into.bad, documents)
		}
	}
	for _, slices := range []int{1, 3, 8} {
		load(slices, http.DefaultTransport)
	}
	loser := &losesPIT{after: 4}
	load(4, loser)
	if !loser.lost {
		t.Error("no point in time was lost, so the test did not cover a lost one")
	}

	es, err := newElastic(address, "", "nothing-here")
	if err != nil {
		t.Fatal(err)
	}
	if err := es.load(t.Context(), newSink(0)); err == nil || !strings.Contains(err.Error(), "index_not_found_exception") {
		t.Errorf("loading a missing index returned %v, want index_not_found_exception", err)
	}
	var open struct {
		Nodes map[string]struct {
			Indices struct {
				Search struct {
					Contexts int `json:"open_contexts"`
				}
			}
		}
	}
	call(t, "GET", address+"/_nodes/stats/indices/search", "application/json", "", &open)
	for _, n := range open.Nodes {
		if n.Indices.Search.Contexts != 0 {
			t.Errorf("the loader left %d points in time open, want none", n.Indices.Search.Contexts)
		}
	}
}

// losesPIT closes the point in time once, without the loader's knowledge.
type losesPIT struct {
	mu    sync.Mutex
	after int // number of searches before the loss
	lost  bool
}

func (l *losesPIT) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/_search") && !l.lost {
		if l.after--; l.after == 0 {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			var ask search
			if err := json.NewDecoder(body).Decode(&ask); err != nil {
				return nil, err
			}
			closing, err := http.NewRequest("DELETE", "http://"+r.URL.Host+"/_pit",
				strings.NewReader(`{"id":`+strconv.Quote(ask.PIT.ID)+`}`))
			if err != nil {
				return nil, err
			}
			closing.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultTransport.RoundTrip(closing)
			if err != nil {
				return nil, err
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return nil, errors.New("close the point in time: " + answer.Status)
			}
			l.lost = true
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}
