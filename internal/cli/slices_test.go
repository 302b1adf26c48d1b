package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// Slices are days in UTC, without a gap. The same span of the same source names the same blocks, so that a command goes
// on where it was interrupted, and another one names others.
func TestSlices(t *testing.T) {
	of := func(source, match, from, to string) []slice {
		t.Helper()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f := newSpanFlags(flags, "now")
		if err := flags.Parse([]string{"--from", from, "--to", to, "--match", match}); err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 10, 4, 0, 0, 0, 0, time.UTC)
		s, err := f.span(now, now)
		if err != nil {
			t.Fatal(err)
		}
		return s.slices(source)
	}
	all := of("a", "up", "2026-10-01T18:00:00Z", "2026-10-03T06:00:00Z")
	want := []string{
		"2026-10-01 18:00 to 2026-10-02 00:00", "2026-10-02 00:00 to 2026-10-03 00:00",
		"2026-10-03 00:00 to 2026-10-03 06:00",
	}
	if len(all) != len(want) {
		t.Fatalf("the slices are %v, want %v", all, want)
	}
	for i, s := range all {
		if s.String() != want[i] || int64(s.id.Time()) != s.from {
			t.Errorf("slice %d is %s, of the time %d; want %s", i, s, s.id.Time(), want[i])
		}
		if again := of("a", "up", "2026-10-01T18:00:00Z", "2026-10-03T06:00:00Z")[i]; again.id != s.id {
			t.Errorf("slice %s has the name %s, and then %s", s, s.id, again.id)
		}
	}
	// A command that is run the next day with a later end has whole days in common.
	if later := of("a", "up", "2026-10-01T18:00:00Z", "2026-10-03T07:00:00Z"); later[1].id != all[1].id ||
		later[2].id == all[2].id {
		t.Error("of a longer span, another day is read again, or the day that grew is not")
	}
	if of("b", "up", "2026-10-01T18:00:00Z", "2026-10-03T06:00:00Z")[1].id == all[1].id ||
		of("a", "down", "2026-10-01T18:00:00Z", "2026-10-03T06:00:00Z")[1].id == all[1].id {
		t.Error("blocks of another source or other series have the same names")
	}
	// A block of the future would make a Prometheus that opens it refuse the present.
	if future := of("a", "up", "2026-10-03T18:00:00Z", "2026-12-01T00:00:00Z"); len(future) != 1 {
		t.Errorf("a span that ends in the future has the slices %v", future)
	}
}

// Two tenants of one Mimir differ in a header only. If their days had the same names, the import of the second tenant
// would say that all was imported before.
func TestSourcesThatDiffer(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	known := []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var blocks []answer.HistoryBlock
		for _, id := range known {
			blocks = append(blocks, answer.HistoryBlock{Block: id})
		}
		if r.URL.Path == historyPath {
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": answer.History{Blocks: blocks}})
			return
		}
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		block := strings.TrimPrefix(r.URL.Path, historyPath+"/")
		if r.Method == http.MethodPut {
			known = append(known, block)
			http.Error(w, "stored", http.StatusTeapot) // the test needs its name only
			return
		}
		if _, err := remote.NewChunkedWriter(w, w.(http.Flusher)).Write(oneSample(t)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	run := func(args ...string) {
		cmd := newImportRemoteReadCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append([]string{server.URL, "--server", server.URL, "--from", "1000", "--to", "2000"}, args...))
		_ = cmd.Execute() // the server stores nothing
	}
	headers := func(team string) string { return "http_headers: {X-Scope-OrgID: {values: [" + team + "]}}" }
	team := "http_headers: {X-Scope-OrgID: {files: [team]}}"
	for i, c := range []struct {
		name string
		args func() []string
	}{
		{"nothing more", func() []string { return nil }},
		{"a tenant", func() []string { return []string{"--http-config", file("a.yml", headers("a"))} }},
		{"another tenant", func() []string { return []string{"--http-config", file("a.yml", headers("b"))} }},
		{"a tenant in a file", func() []string {
			file("team", "a")
			return []string{"--http-config", file("file.yml", team)}
		}},
		{"another tenant in the file", func() []string {
			file("team", "b")
			return []string{"--http-config", file("file.yml", team)}
		}},
		{"a user", func() []string {
			return []string{"--http-config", file("user.yml", "basic_auth: {username: a, password: b}")}
		}},
		{"another password", func() []string {
			return []string{"--http-config", file("user.yml", "basic_auth: {username: a, password: c}")}
		}},
		{"a label", func() []string { return []string{"--label", "cluster=eu"} }},
		{"another label", func() []string { return []string{"--label", "cluster=us"} }},
	} {
		for range 2 { // the second time, the block is there
			if run(c.args()...); len(known) != i+1 {
				t.Fatalf("%s: the server got the blocks %v, want %d", c.name, known, i+1)
			}
		}
	}
}

// Without --to, the last day is not over, and each run imports it as another block. The earlier one is named once the
// new one is there, unless it has more samples, or is of another source.
func TestBlocksOfEarlierRuns(t *testing.T) {
	var has []answer.HistoryBlock
	frame := oneSample(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == historyPath:
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": answer.History{Blocks: has}})
		case r.Method == http.MethodPut:
			_, _ = io.Copy(io.Discard, r.Body)
			has = append(has, answer.HistoryBlock{Block: strings.TrimPrefix(r.URL.Path, historyPath+"/"), MaxTime: 86_400_000,
				Samples: 1})
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": has[len(has)-1]})
		default:
			w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
			if _, err := remote.NewChunkedWriter(w, w.(http.Flusher)).Write(frame); err != nil {
				t.Error(err)
			}
		}
	}))
	defer server.Close()
	run := func(until int64, match string) (notes string) {
		t.Helper()
		code, out, notes := freshet(t, "import", "remote-read", server.URL, "--server", server.URL, "--tenant", "team",
			"--from", "0", "--to", fmt.Sprint(until), "--match", match)
		if code != command.OK {
			t.Fatalf("exit code %d:\n%s%s", code, out, notes)
		}
		has[len(has)-1].MaxTime = until * 1000
		return notes
	}
	run(2000, "up")
	run(2000, "{job='other'}")
	run(2500, "up")
	has[len(has)-1].Samples = 2 // more than the other server has now
	for _, name := range []string{"imported", "known"} {
		notes := run(86_400, "up")
		if len(has) != 4 {
			t.Fatalf("%s: the server has %d blocks, want 4", name, len(has))
		}
		want := "note: the server keeps 1 block of earlier runs beside " + has[3].Block + ", which has their samples, too: " +
			"queries answer each sample once; to free the room, run freshet import remove " + has[0].Block + " --tenant team\n"
		if notes != want {
			t.Errorf("%s: the notes are\n%swant\n%s", name, notes, want)
		}
	}
}

// Another run helps against what can pass. It does not help against a wrong address, which the command says to check.
func TestWhatToDoAboutAServerThatCannotBeRead(t *testing.T) {
	here, _ := answering(t, http.StatusOK, `{"status":"success","data":{"tenant":"default","blocks":[]}}`)
	const again = "run the command again to go on"
	for _, c := range []struct {
		name   string
		answer func(other *httptest.Server, w http.ResponseWriter)
		code   int
		want   string
		no     string
	}{
		{"no such path", func(_ *httptest.Server, w http.ResponseWriter) { w.WriteHeader(404) }, command.Usage,
			"/nowhere/api/v1/read was asked", again},
		{"a page for people", func(_ *httptest.Server, w http.ResponseWriter) { io.WriteString(w, "<html>") },
			command.Usage, "check the URL", again},
		{"no credentials", func(_ *httptest.Server, w http.ResponseWriter) { w.WriteHeader(401) }, command.Usage,
			"--http-config", again},
		{"too many requests", func(_ *httptest.Server, w http.ResponseWriter) { w.WriteHeader(429) }, command.Failure,
			again, "check the URL"},
		{"not ready", func(_ *httptest.Server, w http.ResponseWriter) { w.WriteHeader(503) }, command.Failure,
			again, "check the URL"},
		{"a closed port", nil, command.Failure, "check the URL, and that the server runs", again},
		{"a port that closes after a day", func(other *httptest.Server, w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
			w.Header().Set("Connection", "close")
			other.Listener.Close()
		}, command.Failure, again, "check the URL"},
	} {
		var other *httptest.Server
		other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(other, w) }))
		if c.answer == nil {
			other.Close()
		}
		code, _, told := freshet(t, "import", "remote-read", other.URL+"/nowhere", "--server", here,
			"--from", "2026-10-01T00:00:00Z", "--to", "2026-10-03T00:00:00Z")
		if code != c.code || !strings.Contains(told, c.want) || strings.Contains(told, c.no) {
			t.Errorf("%s: exit code %d, want %d with %q and without %q:\n%s", c.name, code, c.code, c.want, c.no, told)
		}
		other.Close()
	}
	gone, _ := answering(t, http.StatusNotFound, "no such page")
	code, _, told := freshet(t, "export", t.TempDir(), "--server", gone, "--from", "1000", "--to", "2000")
	if code != command.Usage || !strings.Contains(told, "check --server") || strings.Contains(told, again) {
		t.Errorf("export from a server without remote read: exit code %d:\n%s", code, told)
	}
}

// Days without samples are one line, also in front of an error.
func TestDaysWithoutSamplesAreOneLine(t *testing.T) {
	here, _ := answering(t, http.StatusOK, `{"status":"success","data":{"tenant":"default","blocks":[]}}`)
	days := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if days++; days%4 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	}))
	defer other.Close()
	for to, want := range map[string]string{"04": "Imported 0 blocks", "05": ""} {
		days = 0
		_, out, notes := freshet(t, "import", "remote-read", other.URL, "--server", here,
			"--from", "2026-10-01T00:00:00Z", "--to", "2026-10-"+to+"T00:00:00Z")
		if !strings.HasPrefix(out, "2026-10-01 00:00 to 2026-10-04 00:00  no samples\n"+want) ||
			want == "" && strings.Count(out, "\n") != 1 {
			t.Errorf("until October %s:\n%s%s", to, out, notes)
		}
	}
}

// oneSample returns a frame of remote read.
func oneSample(t *testing.T) []byte {
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	if err != nil {
		t.Fatal(err)
	}
	const at = 1_500_000
	app.Append(0, at, 1)
	frame := prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{{
		Labels: []prompb.Label{{Name: "__name__", Value: "up"}},
		Chunks: []prompb.Chunk{{MinTimeMs: at, MaxTimeMs: at, Type: prompb.Chunk_XOR, Data: c.Bytes()}},
	}}}
	b, err := frame.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSpansThatAreMistakes(t *testing.T) {
	for name, args := range map[string][]string{
		"no beginning":       {},
		"the end is earlier": {"--from", "2000", "--to", "1000"},
		"the future":         {"--from", "2027-01-01T00:00:00Z"},
		"no selector":        {"--from", "1000", "--match", "sum(up)"},
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f := newSpanFlags(flags, "now")
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 10, 4, 0, 0, 0, 0, time.UTC)
		if _, err := f.span(now, now); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReadEndpoint(t *testing.T) {
	for source, want := range map[string]string{
		"prometheus:9090":                     "http://prometheus:9090/api/v1/read",
		"https://host/prometheus/":            "https://host/prometheus/api/v1/read",
		"http://mimir/prometheus/api/v1/read": "http://mimir/prometheus/api/v1/read",
		"ftp://host":                          "",
		"http://":                             "",
	} {
		if got, err := readEndpoint(source); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", source, got, err, want)
		}
	}
}
