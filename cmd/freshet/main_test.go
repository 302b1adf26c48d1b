package main

import (
	"context"
	"encoding/json"
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
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		stderr string
	}{
		{"a command that is nearly one", []string{"qurey"}, command.Usage, "freshet: unknown command: qurey; did you mean freshet query?\n"},
		{"one that is none", []string{"frobnicate"}, command.Usage, "freshet: unknown command: frobnicate; see freshet help\n"},
		{"a flag that is nearly one", []string{"query", "--rnage", "1h", "up"}, command.Usage, "freshet: unknown flag: --rnage; did you mean --range?\n"},
		{"one by its old name", []string{"serve", "--ingest-max-body", "1MiB"}, command.Usage, "freshet: --ingest-max-body: was renamed: say --distributor-max-body\n"},
		{"one that another command had", []string{"version", "--ingest-max-body", "1MiB"}, command.Usage, "freshet: unknown flag: --ingest-max-body; see freshet version --help\n"},
		{"one that is none", []string{"version", "--frobnicate"}, command.Usage, "freshet: unknown flag: --frobnicate; see freshet version --help\n"},
		{"a word too many", []string{"version", "now"}, command.Usage, "freshet: freshet version takes flags alone, got \"now\"; see freshet version --help\n"},
		{"no file", []string{"check"}, command.Usage, "freshet: freshet check got 0 words; write freshet check freshet.yaml, or - for standard input\n"},
		{"no snapshot", []string{"restore", "--data-dir", "new"}, command.Usage, "freshet: freshet restore got 0 words; write freshet restore SNAPSHOT --data-dir NEW\n"},
		{"nowhere to restore to", []string{"restore", "old"}, command.Usage, "freshet: restore needs an empty directory, or the name of a new one; write freshet restore SNAPSHOT --data-dir NEW\n"},
		{"a shell that is not known", []string{"completion", "tcsh"}, command.Usage, "freshet: completion takes the name of one shell, bash, zsh or fish; got \"tcsh\"\n"},
		{"a flag that is no whole number", []string{"top", "--limit", "x"}, command.Usage, "freshet: --limit = x: must be a whole number\n"},
		{"one that is negative", []string{"capture", "--datagrams", "-1"}, command.Usage, "freshet: --datagrams = -1: must be a whole number of 0 or more\n"},
		{"one that is no number", []string{"tail", "--sample", "x"}, command.Usage, "freshet: --sample = x: must be a number\n"},
		{"one that is too large", []string{"tail", "--pid", "4294967296"}, command.Usage, "freshet: --pid = 4294967296: must be a whole number that is not as large\n"},
		{"help of no command", []string{"help", "qurey"}, command.Usage, "freshet: unknown command: qurey; did you mean freshet query?\n"},
		{"help", []string{"help"}, command.OK, ""},
		{"help of a command", []string{"help", "query"}, command.OK, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := freshet(t, tt.args...)
			if code != tt.code || stderr != tt.stderr {
				t.Errorf("exit code %d, %q\nwant      %d, %q", code, stderr, tt.code, tt.stderr)
			}
			if help := tt.args[0] == "help" && tt.code == command.OK; help != strings.Contains(stdout, "Examples:") {
				t.Errorf("printed %q", stdout)
			}
		})
	}
}

// Without a command there is a server with its defaults, which says what listens where and
// what to try; --help is how to get the list of commands.
func TestWithoutACommand(t *testing.T) {
	t.Chdir(t.TempDir()) // whose ./data it is
	for _, key := range []string{"HTTP_LISTEN", "DOGSTATSD_UDP", "DISTRIBUTOR_OTLP_GRPC_LISTEN"} {
		t.Setenv("FRESHET_"+key, "127.0.0.1:0")
	}
	var said, notes printed
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- execute(ctx, nil, &said, &notes) }()
	eventually(t, "the server says what to try", func() bool { return strings.Contains(said.String(), "\nTry:\n") })
	var told answer.Listening
	if err := files.ReadJSON(filepath.Join("data", answer.ListeningFile), &told); err != nil || !strings.Contains(said.String(), "  HTTP       http://"+told.HTTP+"  ") {
		t.Errorf("%v, %+v\n%s", err, told, &said)
	}
	stop()
	if code := <-ended; code != command.OK {
		t.Errorf("exit code %d\n%s", code, &notes)
	}
	for _, flag := range []string{"--help", "-h"} {
		if code, stdout, stderr := freshet(t, flag); code != command.OK || stderr != "" || !strings.Contains(stdout, "Run a server:") {
			t.Errorf("%s: exit code %d, %s%s", flag, code, stdout, stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	build.Version = "v1.2.3" // as main sets it
	defer func() { build.Version = "" }()
	if code, stdout, _ := freshet(t, "version"); code != command.OK || !strings.HasPrefix(stdout, "freshet v1.2.3 ") || !strings.Contains(stdout, " go1.") {
		t.Errorf("exit code %d, %q", code, stdout)
	}
	code, stdout, _ := freshet(t, "version", "--json")
	var b build.Info
	if err := json.Unmarshal([]byte(stdout), &b); code != command.OK || err != nil || b != build.This() {
		t.Errorf("exit code %d, %q, %v", code, stdout, err)
	}
}

func TestEvents(t *testing.T) {
	const answer = `{"status":"success","data":[
		{"id":"2","time":1795167065.5,"title":"deploy","text":"version 7\nby ann","tags":["env:prod","team:web"],"host":"web-1","alert_type":"success","priority":"normal","source":"","aggregation_key":""},
		{"id":"1","time":1795167000,"title":"disk \u001b[31mfull","text":"/var","tags":[],"host":"","alert_type":"error","priority":"normal","source":"","aggregation_key":""}]}`
	server, asked := answering(t, http.StatusOK, answer)
	code, stdout, stderr := freshet(t, "events", "--server", server, "--since", "1d", "--text", "deploy", "--tag", "env:prod", "--tag", "a,b")
	if code != command.OK {
		t.Fatal(stderr)
	}
	golden(t, "events.txt", stdout)
	got := asked().Query()
	if start, end := got["start"], got["end"]; len(start) != 1 || len(end) != 1 {
		t.Errorf("asked for the time from %q to %q", start, end)
	}
	got.Del("start")
	got.Del("end")
	if want := (url.Values{"text": {"deploy"}, "tag": {"env:prod", "a,b"}}); got.Encode() != want.Encode() {
		t.Errorf("asked %v, want %v", got, want)
	}
}

// The command and the server's own event log understand each other.
func TestEventsOfTheLog(t *testing.T) {
	log, err := eventlog.Open(eventlog.DefaultConfig(), filepath.Join(t.TempDir(), "events.db"), time.Now, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	at := time.Now().Add(-time.Minute)
	if err := log.Append(t.Context(), []event.Event{
		{Tenant: "default", Time: at.UnixMilli(), Title: "deploy", Text: "version 7", Tags: []string{"env:prod"}, Host: "web-1", Alert: "success"},
		{Tenant: "default", Time: at.UnixMilli(), Title: "deploy", Text: "version 7", Tags: []string{"env:test"}},
		{Tenant: "default", Time: at.UnixMilli(), Title: "backup", Tags: []string{"env:prod"}},
		{Tenant: "default", Time: at.Add(-time.Hour).UnixMilli(), Title: "deploy", Text: "version 6", Tags: []string{"env:prod"}},
	}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Handler().ServeHTTP(w, r.WithContext(tenant.NewContext(r.Context(), "default")))
	}))
	defer server.Close()
	code, stdout, stderr := freshet(t, "events", "--server", server.URL, "--since", "10m", "--text", "version", "--tag", "env:prod")
	want := "time                 type     host   title   tags      text\n" +
		at.Format(time.DateTime) + "  success  web-1  deploy  env:prod  version 7\n"
	if code != command.OK || stdout != want {
		t.Errorf("exit code %d\n%s%s\nwant\n%s", code, stdout, stderr, want)
	}
}

func TestEventsOfNone(t *testing.T) {
	server, _ := answering(t, http.StatusOK, `{"status":"success","data":[]}`)
	if code, stdout, stderr := freshet(t, "events", "--server", server); code != command.OK || stdout != "" || !strings.HasPrefix(stderr, "no events since ") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}
