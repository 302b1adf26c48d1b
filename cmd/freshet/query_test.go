package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/lib/command"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// asCommand in the environment makes the test binary the freshet command, for
// tests that need one as a file.
const asCommand = "FRESHET_TEST_AS_COMMAND"

// TestMain fixes the reader's time zone, which the output is for.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	time.Local = time.UTC
	// Each server keeps its process to nine tenths of what the runtime may have: of the
	// hundredth that a test starts nothing would be left.
	if err := os.Setenv("GOMEMLIMIT", "off"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// golden compares got with testdata/golden/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s\ngot\n%s\nwant\n%s", file, got, want)
	}
}

// freshet runs a command line and returns its exit code and what it printed.
func freshet(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, notes bytes.Buffer
	code = execute(t.Context(), args, &out, &notes)
	return code, out.String(), notes.String()
}

// answering starts a server that gives body to every request, and keeps those.
func answering(t *testing.T, status int, body string) (server string, asked func() *url.URL) {
	t.Helper()
	requests := make(chan *url.URL, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() *url.URL {
		select {
		case u := <-requests:
			return u
		default:
			t.Fatal("the server was not asked")
			return nil
		}
	}
}

// recorded is an answer of Prometheus' own API.
func recorded(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "internal", "adapter", "terminal", "testdata", "answers", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The tests of internal/adapter/terminal show what each answer looks like. Each
// golden file holds what a person sees: the output, then the notes.
func TestQuery(t *testing.T) {
	for _, tt := range []struct{ name, why string }{
		{"info", "what the server remarks comes beside the output"},
		{"warning", "and what it warns of"},
		{"range-one", "the range, its end and its step reach the plot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, _ := answering(t, http.StatusOK, recorded(t, tt.name))
			args := []string{"query", "EXPR", "--server", server, "--time", "3600"}
			if strings.HasPrefix(tt.name, "range-") {
				args = append(args, "--range", "1h", "--step", "1m")
			}
			code, stdout, stderr := freshet(t, args...)
			if code != command.OK {
				t.Errorf("exit code %d", code)
			}
			golden(t, tt.name+".txt", "# "+tt.why+"\n"+stdout+"---- notes\n"+stderr)
		})
	}
}

func TestQueryAsks(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		path string
		want url.Values
	}{
		{
			"an instant", []string{"--time", "2026-11-20T09:30:00Z"},
			"/api/v1/query", url.Values{"query": {"a + b"}, "time": {"1795167000.000"}},
		},
		{
			"a range has as many points as the page has columns", []string{"--time", "3600.5", "--range", "1h"},
			"/api/v1/query_range", url.Values{"query": {"a + b"}, "start": {"16.500"}, "end": {"3600.500"}, "step": {"56"}},
		},
		{
			"but none closer than a second", []string{"--time", "3600", "--range", "10s"},
			"/api/v1/query_range", url.Values{"query": {"a + b"}, "start": {"3590.000"}, "end": {"3600.000"}, "step": {"1"}},
		},
		{
			"a step of one's own", []string{"--time", "864000", "--range", "10d", "--step", "500ms"},
			"/api/v1/query_range", url.Values{"query": {"a + b"}, "start": {"0.000"}, "end": {"864000.000"}, "step": {"0.5"}},
		},
		{
			"a range begins at a step, so that it ends at one", []string{"--time", "864000", "--range", "7d", "--step", "1h1m"},
			"/api/v1/query_range", url.Values{"query": {"a + b"}, "start": {"260100.000"}, "end": {"864000.000"}, "step": {"3660"}},
		},
		{
			"a range that is shorter than its step is its end", []string{"--time", "3600", "--range", "10s", "--step", "1m"},
			"/api/v1/query_range", url.Values{"query": {"a + b"}, "start": {"3600.000"}, "end": {"3600.000"}, "step": {"60"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, asked := answering(t, http.StatusOK, recorded(t, "range-none"))
			t.Setenv("FRESHET_SERVER", strings.TrimPrefix(server, "http://")+"/") // as people write it
			code, _, stderr := freshet(t, append([]string{"query", "a + b"}, tt.args...)...)
			if code != command.OK {
				t.Fatal(stderr)
			}
			if u := asked(); u.Path != tt.path || u.RawQuery != tt.want.Encode() {
				t.Errorf("asked %s?%s\nwant  %s?%s", u.Path, u.RawQuery, tt.path, tt.want.Encode())
			}
		})
	}
}

// What has begun since the last step of a range is found by the end of it, which is now.
func TestARangeEndsNow(t *testing.T) {
	s := ingesting(t)
	symbols := writev2.NewSymbolTable()
	series := writev2.TimeSeries{
		LabelsRefs: []uint32{symbols.Symbolize("__name__"), symbols.Symbolize("young")},
		Samples:    []writev2.Sample{{Timestamp: time.Now().UnixMilli(), Value: 7}},
	}
	if resp, text := s.writeV2(t, symbols.Symbols(), series); resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp.Status, text)
	}
	for _, args := range [][]string{{"--range", "7d"}, {"--range", "7d", "--step", "50h"}, {"--range", "1d"}, {"--range", "5m", "--step", "1h"}} {
		code, stdout, stderr := freshet(t, append([]string{"query", "young", "--server", s.http[0].addr()}, args...)...)
		if code != command.OK || stderr != "" || !strings.Contains(stdout, "young") {
			t.Errorf("%v: exit code %d, %s\n%s", args, code, stderr, stdout)
		}
	}
}

func TestQueryJSON(t *testing.T) {
	body := strings.TrimSpace(recorded(t, "columns"))
	server, _ := answering(t, http.StatusOK, body)
	if code, stdout, stderr := freshet(t, "query", "EXPR", "--json", "--server", server); code != command.OK || stdout != body+"\n" {
		t.Errorf("exit code %d, %s\n%s", code, stdout, stderr)
	}
}

func TestQueryErrors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	nobody := closed.Addr().String()
	const parse = `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:5: parse error: unclosed left parenthesis"}`
	for _, tt := range []struct {
		name   string
		status int // 0: no server
		body   string
		args   []string
		code   int
		want   string // SERVER stands for the server's address
	}{
		{
			"the server's own words", http.StatusBadRequest, parse, []string{"query", "sum("}, command.Usage,
			`freshet: query: bad_data: invalid parameter "query": 1:5: parse error: unclosed left parenthesis` + "\nfreshet:   sum(\nfreshet:       ^",
		},
		{
			"a place that the query does not have", http.StatusBadRequest, parse, []string{"query", "up"}, command.Usage,
			`freshet: query up: bad_data: invalid parameter "query": 1:5: parse error: unclosed left parenthesis`,
		},
		{
			"something else listens there", http.StatusNotFound, "404 page not found", []string{"query", "up"}, command.Failure,
			"freshet: query up: ask SERVER: answered 404 Not Found, and not as a Prometheus API does; is it the address of a freshet server?",
		},
		{
			"JSON of another kind", http.StatusOK, `{"hello":"world"}`, []string{"query", "up"}, command.Failure,
			"freshet: query up: ask SERVER: answered 200 OK, and not as a Prometheus API does; is it the address of a freshet server?",
		},
		{
			"a result that is no result", http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[1]}}`, []string{"query", "up"}, command.Failure,
			"freshet: query up: show the answer: json: cannot unmarshal number into Go value of type struct { Metric model.Metric \"json:\\\"metric\\\"\"; Value model.SamplePair \"json:\\\"value\\\"\"; Histogram model.SampleHistogramPair \"json:\\\"histogram\\\"\" }",
		},
		{
			"a type of the future", http.StatusOK, `{"status":"success","data":{"resultType":"none","result":[]}}`, []string{"query", "up"}, command.Failure,
			"freshet: query up: show the answer: this version does not know the type \"none\"; use --json",
		},
		{
			"nobody listens", 0, "", []string{"query", "up", "--server", nobody}, command.Failure,
			"freshet: query up: ask http://" + nobody + ": dial tcp " + nobody + ": connect: connection refused; is `freshet serve` running there? Start it, or name another server by --server or FRESHET_SERVER",
		},
		{
			"an address that is none", 0, "", []string{"query", "up", "--server", "a b"}, command.Usage,
			"freshet: query up: --server = http://a b: is not an address; write it like http://127.0.0.1:7125",
		},
		{
			"an expression without quotes", 0, "", []string{"query", "sum", "by", "x"}, command.Usage,
			"freshet: query takes one expression, got 3 words; write it in quotes: freshet query 'sum by (host) (page_views)'",
		},
		{
			"a range without a unit", 0, "", []string{"query", "up", "--range", "5"}, command.Usage,
			`freshet: invalid argument "5" for "--range" flag: is not a duration; write it like 500ms, 10s, 1h30m or 2d`,
		},
		{
			"a step that would never end", 0, "", []string{"query", "up", "--step", "0s"}, command.Usage,
			`freshet: invalid argument "0s" for "--step" flag: is too short; write at least 1ms`,
		},
		{
			"a time that is none", 0, "", []string{"query", "up", "--time", "yesterday"}, command.Usage,
			`freshet: invalid argument "yesterday" for "--time" flag: is not a time; write Unix seconds or 2006-01-02T15:04:05Z`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.status != 0 {
				server, _ := answering(t, tt.status, tt.body)
				tt.args = append(tt.args, "--server", server)
				tt.want = strings.ReplaceAll(tt.want, "SERVER", server)
			}
			code, stdout, stderr := freshet(t, tt.args...)
			if code != tt.code || stdout != "" || stderr != tt.want+"\n" {
				t.Errorf("exit code %d, output %q\n%s\nwant %d\n%s", code, stdout, stderr, tt.code, tt.want)
			}
		})
	}
}

// The caret stands below what the parser of a real server stumbled over, whatever is wide,
// unprintable or on other lines before it.
func TestQueryPointsAtTheError(t *testing.T) {
	s := running(t, fmt.Sprintf(`
data_dir: %s
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`, filepath.Join(t.TempDir(), "data")))
	for _, tt := range []struct{ name, expr, want string }{
		{"a word", "sum(rate(a[5m]) by", "sum(rate(a[5m]) by\n                ^"},
		{"the end", "sum(", "sum(\n    ^"},
		{"a type", "1 + rate(a)", "1 + rate(a)\n         ^"},
		{"a later line", "sum(a)\n  + rate(b)\n  + c", "  + rate(b)\n         ^"},
		{"wide text", `{a="日本", b!}`, `{a="日本", b!}` + "\n            ^"},
		{"a tab", "a +\trate(b)", `a +\x09rate(b)` + "\n            ^"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, args := range [][]string{nil, {"--range", "1h"}} {
				code, stdout, stderr := freshet(t, append([]string{"query", tt.expr, "--server", s.http[0].addr()}, args...)...)
				_, caret, _ := strings.Cut(strings.ReplaceAll(stderr, "freshet: ", ""), "\n")
				want := "  " + strings.ReplaceAll(tt.want, "\n", "\n  ") + "\n"
				if code != command.Usage || stdout != "" || caret != want {
					t.Errorf("%q: exit code %d, output %q\n%s\nwant below the error\n%s", args, code, stdout, stderr, want)
				}
			}
		})
	}
}

// What a server says is wrong with the question is a mistake on the command line, and what
// it cannot answer is none: a script that repeats a command can tell them apart.
func TestExitCodesOfQuestions(t *testing.T) {
	s := running(t, `
data_dir: `+t.TempDir()+`
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
`)
	for _, c := range []struct {
		why  string
		args []string
		code int
		text string
	}{
		{"it matches nothing", []string{"query", "nothing"}, command.OK, "no series match"},
		{"it ends too soon", []string{"query", "sum("}, command.Usage, "1:5: parse error"},
		{"a function that there is not", []string{"query", "mean(up)"}, command.Usage, `unknown function with name "mean"`},
		{"of a range", []string{"query", "rate(up)", "--range", "1h"}, command.Usage, "expected type range vector"},
		{"too many points", []string{"query", "up", "--range", "30d", "--step", "1s"}, command.Usage, "11,000 points"},
		{"labels that match twice", []string{"query", `label_replace(vector(1), "a", "1", "", "") + on () (vector(1) or label_replace(vector(1), "a", "1", "", ""))`}, command.Failure, "execution: "},
		{"a socket that there is not", []string{"tail", "--listener", "udp://127.0.0.1:1"}, command.Usage, "has no such socket"},
		{"a record that there is not", []string{"diagnose", "--record", "none"}, command.Failure, "there is no such record"},
	} {
		code, stdout, stderr := freshet(t, append(c.args, "--server", s.http[0].addr())...)
		if code != c.code || !strings.Contains(stderr, c.text) {
			t.Errorf("%s: exit code %d, want %d: %s%s", c.why, code, c.code, stdout, stderr)
		}
	}
}

// A refusal is long since it names the way out, and is told to its end.
func TestRefusalsAreToldWhole(t *testing.T) {
	why := "http.operator_loopback is off until the server is stopped and started, since a request came by way of a proxy (X-Forwarded-For), whose clients have a loopback address, too; " + toOperators
	for _, args := range [][]string{{"diagnose"}, {"query", "up"}, {"tail"}} {
		server, _ := answering(t, http.StatusForbidden, why)
		if code, _, stderr := freshet(t, append(args, "--server", server)...); code != command.Failure || !strings.Contains(stderr, toOperators) {
			t.Errorf("freshet %s: exit code %d, %s", args[0], code, stderr)
		}
	}
}
