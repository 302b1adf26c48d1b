package eventlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

const (
	first = `{"id":"1","time":1.5,"title":"first","text":"","tags":[],"host":"","alert_type":"info",` +
		`"priority":"normal","source":"","aggregation_key":""}`
	second = `{"id":"2","time":2,"title":"second","text":"x","tags":["k:v","web"],"host":"h","alert_type":"error",` +
		`"priority":"low","source":"s","aggregation_key":"k"}`
)

func TestHandler(t *testing.T) {
	l, _ := start(t, DefaultConfig())
	add(t, l,
		event.Event{Tenant: "a", Time: 1500, Title: "first", Alert: "info", Priority: "normal"},
		event.Event{
			Tenant: "a", Time: 2000, Title: "second", Text: "x", Tags: []string{"k:v", "web"}, Host: "h", Alert: "error",
			Priority: "low", Source: "s", Key: "k",
		},
		event.Event{Tenant: "b", Time: 2000, Title: "another's"})

	data := func(events ...string) string {
		return `{"status":"success","data":[` + strings.Join(events, ",") + `]}`
	}
	bad := func(text string) string { return `{"status":"error","errorType":"bad_data","error":"` + text + `"}` }
	for _, c := range []struct {
		why, method, query string
		code               int
		want               string
	}{
		{"all events of the tenant", "GET", "", 200, data(second, first)},
		{"Grafana posts forms", "POST", "start=1&end=1.5", 200, data(first)},
		{"RFC 3339, too", "GET", "start=1970-01-01T00:00:02Z", 200, data(second)},
		{"every tag", "GET", "tag=web&tag=k:v", 200, data(second)},
		{"no event found is an empty list, not null", "GET", "tag=web&tag=none", 200, data()},
		{"text", "GET", "text=FIR", 200, data(first)},
		{"more events match than the limit allows", "GET", "limit=1", 200,
			`{"status":"success","data":[` + second + `],"warnings":["results truncated due to limit"]}`},
		{"as many events match as the limit allows", "GET", "limit=2", 200, data(second, first)},
		{"an invalid time", "GET", "start=yesterday", 400,
			bad(`invalid parameter \"start\": cannot parse \"yesterday\" to a valid timestamp; give Unix seconds or RFC 3339`)},
		{"NaN, which parses as a float", "GET", "end=NaN", 400,
			bad(`invalid parameter \"end\": cannot parse \"NaN\" to a valid timestamp; give Unix seconds or RFC 3339`)},
		{"a time beyond milliseconds", "GET", "end=1e300", 400,
			bad(`invalid parameter \"end\": cannot parse \"1e300\" to a valid timestamp; give Unix seconds or RFC 3339`)},
		{"a range turned around", "GET", "start=2&end=1", 400, bad(`invalid parameter \"end\": it is before start`)},
		{"a limit of zero", "GET", "limit=0", 400, bad(`invalid parameter \"limit\": \"0\" is not a number from 1 to 10000`)},
		{"a limit above the maximum", "GET", "limit=10001", 400,
			bad(`invalid parameter \"limit\": \"10001\" is not a number from 1 to 10000`)},
		{"an invalid form", "GET", "a=%zz", 400, bad(`parse the form: invalid URL escape \"%zz\"`)},
		{"a method other than GET and POST", "DELETE", "", 405, bad(`method DELETE is not allowed; use GET or POST`)},
	} {
		r := httptest.NewRequest(c.method, "/api/v1/events?"+c.query, nil)
		if c.method == "POST" {
			r = httptest.NewRequest(c.method, "/api/v1/events", strings.NewReader(c.query))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		w := httptest.NewRecorder()
		l.Handler(isCurrent).ServeHTTP(w, r.WithContext(tenant.NewContext(r.Context(), "a")))
		if got := strings.TrimSpace(w.Body.String()); w.Code != c.code || got != c.want {
			t.Errorf("%s:\n got %d %s\nwant %d %s", c.why, w.Code, got, c.code, c.want)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: content type %q", c.why, got)
		}
	}
}

func isCurrent(context.Context, string) error { return nil }

// A log that may lack events says so: in an error, or in a warning if the client accepts a partial
// answer.
func TestHandlerWithoutTheNewestEvents(t *testing.T) {
	l, _ := start(t, DefaultConfig())
	add(t, l, event.Event{Tenant: "a", Time: 1, Title: "old"})
	lags := l.Handler(func(context.Context, string) error { return errors.New("events may be missing") })
	for query, want := range map[string]string{
		"": `503 {"status":"error","errorType":"unavailable","error":"events may be missing"}`,
		"?partial_response=true": `200 {"status":"success","data":[{"id":"1","time":0.001,"title":"old","text":"","tags":[],` +
			`"host":"","alert_type":"","priority":"","source":"","aggregation_key":""}],"warnings":["events may be missing"]}`,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/api/v1/events"+query, nil)
		lags.ServeHTTP(w, r.WithContext(tenant.NewContext(r.Context(), "a")))
		if got := fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String())); got != want {
			t.Errorf("%s:\n got %s\nwant %s", query, got, want)
		}
	}
}

// A request without a tenant must not read any tenant's events.
func TestHandlerWithoutTenant(t *testing.T) {
	l, _ := start(t, DefaultConfig())
	w := httptest.NewRecorder()
	l.Handler(isCurrent).ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/api/v1/events", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
