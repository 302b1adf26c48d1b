package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage/remote"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// A part of today would be written again tomorrow, under another name beside the first one. So samples end at midnight
// unless --to says otherwise.
func TestExportLeavesOutToday(t *testing.T) {
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	}))
	defer empty.Close()
	var out strings.Builder
	cmd := newExportCommand()
	cmd.SetOut(&out)
	from := time.Now().Add(-48 * time.Hour)
	cmd.SetArgs([]string{t.TempDir(), "--server", empty.URL, "--json", "--from", from.Format(time.RFC3339)})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	last := exportStep{}
	for steps := json.NewDecoder(strings.NewReader(out.String())); steps.More(); {
		if err := steps.Decode(&last); err != nil {
			t.Fatal(err)
		}
	}
	if end := time.UnixMilli(last.MaxTime); !end.Equal(end.Truncate(sliceTime)) || end.Before(from) {
		t.Errorf("samples end at %s, want a midnight in UTC; the output is\n%s", end, &out)
	}
}

// Most of a span may be older than all samples. The days without any are one line, and the last line sums up.
func TestExportSumsUp(t *testing.T) {
	frame := oneSample(t) // of 1970-01-01
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		if _, err := remote.NewChunkedWriter(w, w.(http.Flusher)).Write(frame); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		code, out, notes := freshet(t, append([]string{"export", dir, "--server", server.URL}, args...)...)
		if code != command.OK || notes != "" {
			t.Fatalf("exit code %d:\n%s%s", code, out, notes)
		}
		out = regexp.MustCompile(`[0-9]+(\.[0-9])? K?i?B`).ReplaceAllString(out, "SIZE")
		return regexp.MustCompile(`(?m)^0[0-9A-Z]{25}`).ReplaceAllString(strings.ReplaceAll(out, dir, "DIR"), "BLOCK")
	}
	span := []string{"--from", "1969-12-29T00:00:00Z", "--to", "1970-01-05T00:00:00Z"}
	const days = `1969-12-29 00:00 to 1970-01-01 00:00  no samples
BLOCK  %s
1970-01-02 00:00 to 1970-01-05 00:00  no samples
`
	for _, want := range []string{
		fmt.Sprintf(days, "1970-01-01 00:00 to 1970-01-02 00:00  1 series, 1 sample, SIZE") +
			"Exported 1 block with 1 sample, SIZE, to DIR; 0 known before\n",
		fmt.Sprintf(days, "was exported before") + "Exported 0 blocks with 0 samples, SIZE, to DIR; 1 known before\n",
	} {
		if got := run(span...); got != want {
			t.Errorf("the output is\n%swant\n%s", got, want)
		}
	}
	last := exportStep{}
	for line := range strings.Lines(run(append(span, "--json")...)) {
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatal(err)
		}
	}
	if last.State != "done" || last.Known != 1 || last.Blocks != 0 {
		t.Errorf("the last line of JSON is %+v", last)
	}
	got := run("--from", time.Now().Add(-24*time.Hour).Format(time.RFC3339))
	if !strings.HasSuffix(got, "; today is not over, and left out: --to includes it\n") || strings.Count(got, "\n") != 2 {
		t.Errorf("without --to, the output is\n%s", got)
	}
}

// A server without tenants ignores the header X-Scope-OrgID, and answered an export of another tenant with the samples
// of the default one. So the tenant is named to a route for operators. Without a name, a token says which tenant it is.
func TestExportNamesItsTenant(t *testing.T) {
	for tenant, want := range map[string]string{
		"": "/api/v1/read?", "team": historyPath + "/read?tenant=team",
	} {
		asked := map[string]bool{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == historyPath {
				io.WriteString(w, `{"status":"success","data":{"tenant":"team","blocks":[]}}`)
				return
			}
			asked[r.URL.String()] = true
			w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		}))
		cmd := newExportCommand()
		cmd.SetOut(io.Discard)
		cmd.SetArgs([]string{t.TempDir(), "--server", server.URL, "--tenant", tenant, "--from", "1000", "--to", "2000"})
		if err := cmd.Execute(); err != nil {
			t.Error(err)
		}
		server.Close()
		if len(asked) != 1 || !asked[want] {
			t.Errorf("the export of tenant %q asks %v, want %s", tenant, asked, want)
		}
	}
}

// A tenant that the server does not have is a typing error more often than not. It leaves no directory.
func TestExportOfAnUnknownTenant(t *testing.T) {
	server, _ := answering(t, http.StatusOK, `{"status":"success","data":{"tenant":"nosuch","blocks":[],"unknown":true}}`)
	dir := filepath.Join(t.TempDir(), "out")
	code, out, told := freshet(t, "export", dir, "--server", server, "--tenant", "nosuch",
		"--from", "1000", "--to", "2000")
	if code != command.Usage || out != "" ||
		!strings.Contains(told, "--tenant nosuch: the server has no samples of a tenant of this name") {
		t.Errorf("exit code %d:\n%s%s", code, out, told)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it made the directory")
	}
}

// Blocks of two servers or tenants in one directory have different names: else the second export would say that its
// days are there.
func TestExportsOfTwoServers(t *testing.T) {
	tenant := "default"
	source := func(address string) string {
		return (&exporting{server: &apiclient.Server{Address: address}, tenant: &tenant}).source()
	}
	if source("a:8428") == source("b:8428") {
		t.Error("the blocks of two servers have the same names")
	}
	if source("a:8428") != source("http://a:8428") {
		t.Error("the blocks of a server have other names if its address has a scheme")
	}
	before := source("a:8428")
	if tenant = "team"; source("a:8428") == before {
		t.Error("the blocks of two tenants have the same names")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join("data", "operator.sock")
	if source("unix:"+socket) != source("unix:"+filepath.Join(here, socket)) {
		t.Error("the blocks of a server have other names if the path of its socket is relative")
	}
}
