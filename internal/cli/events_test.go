package cli

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func TestEvents(t *testing.T) {
	const answer = `{"status":"success","data":[
		{"id":"2","time":1795167065.5,"title":"deploy","text":"version 7\nby ann","tags":["env:prod","team:web"],"host":"web-1","alert_type":"success","priority":"normal","source":"","aggregation_key":""},
		{"id":"1","time":1795167000,"title":"disk \u001b[31mfull","text":"/var","tags":[],"host":"","alert_type":"error","priority":"normal","source":"","aggregation_key":""}]}`
	server, asked := answering(t, http.StatusOK, answer)
	code, stdout, stderr := freshet(t, "events", "--server", server, "--since", "1d", "--text", "deploy", "--tag",
		"env:prod", "--tag", "a,b")
	if code != command.OK {
		t.Fatal(stderr)
	}
	golden(t, "events.txt", stdout)
	got := asked().Query()
	if start, end := got["start"], got["end"]; len(start) != 1 || len(end) != 1 {
		t.Errorf("the command asked for events from %q to %q, want one start and one end", start, end)
	}
	got.Del("start")
	got.Del("end")
	if want := (url.Values{"text": {"deploy"}, "tag": {"env:prod", "a,b"}}); got.Encode() != want.Encode() {
		t.Errorf("the command requested %v, want %v", got, want)
	}
}

// The command can read the answer of the server's own event log.
func TestEventsOfTheLog(t *testing.T) {
	log, err := eventlog.Open(eventlog.DefaultConfig(), filepath.Join(t.TempDir(), "events.db"), time.Now, nil,
		prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	at := time.Now().Add(-time.Minute)
	if err := log.Append(t.Context(), []event.Event{
		{Tenant: "default", Time: at.UnixMilli(), Title: "deploy", Text: "version 7", Tags: []string{"env:prod"},
			Host: "web-1", Alert: "success"},
		{Tenant: "default", Time: at.UnixMilli(), Title: "deploy", Text: "version 7", Tags: []string{"env:test"}},
		{Tenant: "default", Time: at.UnixMilli(), Title: "backup", Tags: []string{"env:prod"}},
		{Tenant: "default", Time: at.Add(-time.Hour).UnixMilli(), Title: "deploy", Text: "version 6",
			Tags: []string{"env:prod"}},
	}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(tenant.NewContext(r.Context(), "default"))
		log.Handler(func(context.Context, string) error { return nil }).ServeHTTP(w, r)
	}))
	defer server.Close()
	code, stdout, stderr := freshet(t, "events", "--server", server.URL, "--since", "10m", "--text", "version", "--tag",
		"env:prod")
	want := "time                 type     host   title   tags      text\n" +
		at.Format(time.DateTime) + "  success  web-1  deploy  env:prod  version 7\n"
	if code != command.OK || stdout != want {
		t.Errorf("exit code %d\n%s%s\nwant\n%s", code, stdout, stderr, want)
	}
}

func TestEventsOfNone(t *testing.T) {
	server, _ := answering(t, http.StatusOK, `{"status":"success","data":[]}`)
	if code, stdout, stderr := freshet(t, "events", "--server", server); code != command.OK || stdout != "" ||
		!strings.HasPrefix(stderr, "no events since ") {
		t.Errorf("exit code %d, output %q, errors %q; want 0, no output, \"no events since\"", code, stdout, stderr)
	}
}
