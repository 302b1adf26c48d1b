package cli

import (
	"archive/zip"
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/diagnose"
	"github.com/freshet-io/freshet/internal/core/record"
)

// recordFile writes a record such as an untrusted person could send.
func recordFile(t *testing.T, files map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, text := range files {
		part, err := w.Create(name)
		if err == nil {
			_, err = part.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "record.zip")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const recordSummary = `{"format":1,"id":"20261121T235756.730-queue","reason":"stage queue \u001b[31mtook 2s",` +
	`"began":"2026-11-21T23:57:56Z","ended":"2026-11-21T23:58:01Z","gomaxprocs":2}`

// A record may come from anyone. Its text is shown, but its control characters are not.
func TestDiagnoseFile(t *testing.T) {
	file := recordFile(t, map[string]string{
		record.Summary:      recordSummary,
		record.MetricsBegin: "freshet_limit_samples_total 0\n",
		record.MetricsEnd:   "freshet_limit_samples_total 50000\n",
		record.Top: `[{"tenant":"a","over_limits":[{"metric":"m\u001b[2J","label":"l","values":7000,` +
			`"sender":"10.0.0.1","limit":"limits.max_series"}]}]`,
	})
	stdout, stderr, code := shell(t, "diagnose", file)
	if code != 0 || stderr != "" || strings.Contains(stdout, "\x1b") {
		t.Fatalf("exit code %d, output %q, errors %q; want 0, no control characters, no errors", code, stdout, stderr)
	}
	for _, want := range []string{"1. A flood of series: ",
		"10,000 samples a second", "label l", "10.0.0.1", "Next: ", "Found fine:", "not in the record: trace.out"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	coloured := (&diagnosing{View: terminal.View{Colour: true}}).page(&diagnose.Diagnosis{Causes: []diagnose.Cause{{
		Name: "lock", Title: "A lock\x1b[2J", Score: .9,
	}}})
	if !strings.Contains(coloured, red) || strings.Contains(coloured, "\x1b[2J") {
		t.Errorf("in colour: %q", coloured)
	}
	stdout, _, code = shell(t, "diagnose", "--json", file)
	if code != 0 || !strings.HasPrefix(stdout, `{"record":{"id":"20261121T235756.730-queue"`) ||
		strings.Count(stdout, "\n") != 1 {
		t.Errorf("exit code %d: %s", code, stdout)
	}
}

func TestDiagnoseMistakes(t *testing.T) {
	notZip := filepath.Join(t.TempDir(), "x.zip")
	if err := os.WriteFile(notZip, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"a.zip b.zip", "one record"},
		{"a.zip --last", "one record"},
		{"--record x --last", "one record"},
		{notZip + " --save y.zip", "is already in a file"},
		{notZip, "not a valid zip file"},
		{filepath.Join(t.TempDir(), "none.zip"), "no such file"},
		{recordFile(t, map[string]string{record.Summary: `{"format":2}`}), "format 2"},
		{"--server 127.0.0.1:1", "freshet serve"},
	} {
		_, stderr, code := shell(t, append([]string{"diagnose"}, strings.Fields(c.args)...)...)
		if code == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("diagnose %s: exit code %d, errors %q; want a failure with %q", c.args, code, stderr, c.want)
		}
	}
}

// The command announces long work even if it cannot draw its progress.
func TestDiagnoseSaysThatItRecords(t *testing.T) {
	server, _ := answering(t, http.StatusForbidden, "not now")
	if _, _, stderr := freshet(t, "diagnose", "--server", server); !strings.HasPrefix(stderr,
		"recording what the server does, which takes ") {
		t.Error(stderr)
	}
	server, _ = answering(t, http.StatusForbidden, "not now")
	if _, _, stderr := freshet(t, "diagnose", "--server", server, "--last"); strings.Contains(stderr, "recording") {
		t.Errorf("the command announced a recording although it makes none: %s", stderr)
	}
}
