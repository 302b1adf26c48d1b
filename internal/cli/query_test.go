package cli

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/lib/command"
)

// The tests of internal/adapter/terminal cover the form of each answer. Each golden file here holds
// what users see: the output, then the notes.
func TestQuery(t *testing.T) {
	for _, tt := range []struct{ name, why string }{
		{"info", "the server's notes do not go to the output"},
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
			"/api/v1/query_range",
			url.Values{"query": {"a + b"}, "start": {"260100.000"}, "end": {"864000.000"}, "step": {"3660"}},
		},
		{
			"a range that is shorter than its step is its end", []string{"--time", "3600", "--range", "10s", "--step", "1m"},
			"/api/v1/query_range", url.Values{"query": {"a + b"}, "start": {"3600.000"}, "end": {"3600.000"}, "step": {"60"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, asked := answering(t, http.StatusOK, recorded(t, "range-none"))
			t.Setenv("FRESHET_SERVER", strings.TrimPrefix(server, "http://")+"/") // the address as people may write it
			code, _, stderr := freshet(t, append([]string{"query", "a + b"}, tt.args...)...)
			if code != command.OK {
				t.Fatal(stderr)
			}
			if u := asked(); u.Path != tt.path || u.RawQuery != tt.want.Encode() {
				t.Errorf("the command requested %s?%s\nwant                  %s?%s", u.Path, u.RawQuery, tt.path, tt.want.Encode())
			}
		})
	}
}

// Advice follows the answer as a note. A script that asks for JSON gets none, and the server no more requests.
func TestQueryAdvises(t *testing.T) {
	const none = `{"resultType":"vector","result":[]}`
	const one = `{"resultType":"vector","result":[{"metric":{"queue":"mail"},"value":[3600,"0"]}]}`
	for _, tt := range []struct {
		name    string
		answers map[string]string // by path and parameters
		args    []string
		want    string // the notes
	}{
		{
			"a typo in a metric", map[string]string{
				"/api/v1/query?query=page_veiws&time=3600.000":         none,
				"/api/v1/label/__name__/values?match%5B%5D=page_veiws": `[]`,
				"/api/v1/label/__name__/values?":                       `["page_views","queue_depth"]`,
			},
			[]string{"page_veiws"},
			"no series match at " + time.Unix(3600, 0).Format(time.RFC3339) +
				"\nnote: no metric is named page_veiws; did you mean page_views?\n",
		},
		{
			"the rate of a gauge", map[string]string{
				"/api/v1/query?query=rate%28queue_depth%5B5m%5D%29&time=3600.000": one,
				"/api/v1/metadata?metric=queue_depth":                             `{"queue_depth":[{"type":"gauge"}]}`,
			},
			[]string{"rate(queue_depth[5m])"},
			"note: queue_depth is a gauge: rate is for counters, and takes each fall for a restart; " +
				"use deriv(queue_depth[5m])\n",
		},
		{
			"a server without an answer about advice", map[string]string{
				"/api/v1/query?query=rate%28queue_depth%5B5m%5D%29&time=3600.000": one,
			},
			[]string{"rate(queue_depth[5m])"}, "",
		},
		{
			"JSON", map[string]string{"/api/v1/query?query=page_veiws&time=3600.000": none},
			[]string{"page_veiws", "--json"}, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				data, ok := tt.answers[r.URL.Path+"?"+r.URL.Query().Encode()]
				if !ok {
					http.Error(w, `{"status":"error","errorType":"bad_data","error":"not this one"}`, http.StatusBadRequest)
					return
				}
				io.WriteString(w, `{"status":"success","data":`+data+`}`)
			}))
			defer s.Close()
			code, _, notes := freshet(t, append([]string{"query", "--server", s.URL, "--time", "3600"}, tt.args...)...)
			if code != command.OK || notes != tt.want {
				t.Errorf("exit code %d, notes\n%swant\n%s", code, notes, tt.want)
			}
		})
	}
}

func TestQueryJSON(t *testing.T) {
	body := strings.TrimSpace(recorded(t, "columns"))
	server, _ := answering(t, http.StatusOK, body)
	if code, stdout, stderr := freshet(t, "query", "EXPR", "--json", "--server", server); code != command.OK ||
		stdout != body+"\n" {
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
	const parse = `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:5: parse error: ` +
		`unclosed left parenthesis"}`
	for _, tt := range []struct {
		name   string
		status int // 0: there is no server
		body   string
		args   []string
		code   int
		want   string // the test replaces SERVER by the server's address
	}{
		{
			"the server's own words", http.StatusBadRequest, parse, []string{"query", "sum("}, command.Usage,
			`freshet: query: bad_data: invalid parameter "query": 1:5: parse error: unclosed left parenthesis` +
				"\nfreshet:   sum(\nfreshet:       ^",
		},
		{
			"what to write instead", http.StatusBadRequest, strings.Replace(parse, "1:5: parse error: unclosed left parenthesis",
				`1:1: parse error: unknown function with name \"rat\"`, 1), []string{"query", "rat(x[5m])"}, command.Usage,
			`freshet: query: bad_data: invalid parameter "query": 1:1: parse error: unknown function with name "rat"` +
				"\nfreshet:   rat(x[5m])\nfreshet:   ^\nfreshet:   did you mean rate?",
		},
		{
			"a place that the query does not have", http.StatusBadRequest, parse, []string{"query", "up"}, command.Usage,
			`freshet: query up: bad_data: invalid parameter "query": 1:5: parse error: unclosed left parenthesis`,
		},
		{
			"another program listens there", http.StatusNotFound, "404 page not found", []string{"query", "up"}, command.Failure,
			"freshet: query up: ask SERVER: answered 404 Not Found, but not as a Prometheus API does; " +
				"is this the address of a freshet server?",
		},
		{
			"JSON of another kind", http.StatusOK, `{"hello":"world"}`, []string{"query", "up"}, command.Failure,
			"freshet: query up: ask SERVER: answered 200 OK, but not as a Prometheus API does; " +
				"is this the address of a freshet server?",
		},
		{
			"an invalid result", http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[1]}}`,
			[]string{"query", "up"}, command.Failure,
			"freshet: query up: show the answer: json: cannot unmarshal number into Go value of type struct { Metric " +
				"model.Metric \"json:\\\"metric\\\"\"; Value model.SamplePair \"json:\\\"value\\\"\"; " +
				"Histogram model.SampleHistogramPair \"json:\\\"histogram\\\"\" }",
		},
		{
			"a type of the future", http.StatusOK, `{"status":"success","data":{"resultType":"none","result":[]}}`,
			[]string{"query", "up"}, command.Failure,
			"freshet: query up: show the answer: this version does not know the type \"none\"; use --json",
		},
		{
			"nobody listens", 0, "", []string{"query", "up", "--server", nobody}, command.Failure,
			"freshet: query up: ask http://" + nobody + ": dial tcp " + nobody +
				": connect: connection refused; is `freshet serve` running there? Start it, or name another server by --server " +
				"or FRESHET_SERVER",
		},
		{
			"an invalid address", 0, "", []string{"query", "up", "--server", "a b"}, command.Usage,
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
			"a step without a range", 0, "", []string{"query", "up", "--step", "10s"}, command.Usage,
			"freshet: --step is the time between the points of a range: add --range, such as --range 1h",
		},
		{
			"a step that would never end", 0, "", []string{"query", "up", "--step", "0s"}, command.Usage,
			`freshet: invalid argument "0s" for "--step" flag: is too short; write at least 1ms`,
		},
		{
			"an invalid time", 0, "", []string{"query", "up", "--time", "yesterday"}, command.Usage,
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

// A refusal is printed in full although it is long, because it tells the user what to do.
func TestRefusalsAreToldWhole(t *testing.T) {
	const wayOut = "ask by operator.sock in the data directory, as freshet does on the server's machine, " +
		"or with the token of an operator (http.operators_file)"
	const why = "http.operator_loopback is off until the server is stopped and started, " +
		"because a request came through a proxy (X-Forwarded-For), whose clients have a loopback address too; " + wayOut
	for _, args := range [][]string{{"diagnose"}, {"query", "up"}, {"tail"}} {
		server, _ := answering(t, http.StatusForbidden, why)
		if code, _, stderr := freshet(t, append(args, "--server", server)...); code != command.Failure ||
			!strings.Contains(stderr, wayOut) {
			t.Errorf("freshet %s: exit code %d, errors %q; want %d, %q", args[0], code, stderr, command.Failure, wayOut)
		}
	}
}
