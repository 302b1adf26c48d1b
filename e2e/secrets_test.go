package e2e

import (
	"archive/zip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// No answer, log line, record or command shows secrets of the configuration: values of backends'
// headers, and passwords and parameters in URLs. status/config once showed them, and so did the log
// while a backend was down.
func TestSecretsStayInTheFile(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away.Close() // so that nothing answers at its address
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	backend := fmt.Sprintf("forward:\n  backends:\n  - {name: away, url: 'http://%s/s3/push?token=s3cret-2', headers: "+
		"{X-Token: s3cret-3}, retry_max: 100ms}\n", away.Addr())
	write(backend)
	p := start(t, dir, "--config", file, "--self-traces-endpoint",
		fmt.Sprintf("http://ann:s3cret-4@%s/v1/traces?key=s3cret-5", away.Addr()))
	conn, err := net.Dial("udp", p.UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, startLimit, "a tile waits for the backend", func() error {
		if _, err := io.WriteString(conn, "e2e.secret:1|c"); err != nil {
			return err
		}
		if !strings.Contains(p.output.String(), "requests wait in the queue") {
			return fmt.Errorf("the log does not say that requests wait")
		}
		return nil
	})

	shown := map[string]string{}
	for _, path := range []string{"/api/v1/status/config",
		"/api/v1/status/flags", "/metrics", "/api/v1/status/runtimeinfo"} {
		body, err := p.get(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		shown[path] = string(body)
	}
	if !strings.Contains(shown["/api/v1/status/config"], "X-Token: \\u003csecret\\u003e") &&
		!strings.Contains(shown["/api/v1/status/config"], "X-Token: <secret>") {
		t.Errorf("status/config does not show the header's name: %s", shown["/api/v1/status/config"])
	}
	write(strings.ReplaceAll(backend, secret, "s3cret-an0ther"))
	code, out, notes := invoke(t, "diff", file, "--server", p.HTTP)
	if shown["diff"] = out + notes; code != 1 ||
		!strings.Contains(out, "forward.backends[0].headers.X-Token: <secret> -> <secret>") {
		t.Errorf("diff if only secrets changed: exit code %d, want 1 and <secret> twice: %s%s", code, out, notes)
	}
	resp, err := http.Post("http://"+p.HTTP+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	shown["reload"] = string(text)
	p.says(t, "configuration reloaded")
	// This reload fails, and prints the value without its secret.
	write(strings.Replace(backend, "'http://", "'ftp://ann:s3cret@", 1))
	if resp, err = http.Post("http://"+p.HTTP+"/-/reload", "", nil); err != nil {
		t.Fatal(err)
	}
	text, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	shown["a reload that fails"] = string(text)
	p.says(t, "is not a URL")

	record := filepath.Join(dir, "record.zip")
	if code, out, notes := invoke(t, "diagnose", "--server", p.HTTP, "--save", record); code != 0 {
		t.Fatalf("diagnose: exit code %d, want 0: %s%s", code, out, notes)
	}
	files, err := zip.OpenReader(record)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for _, f := range files.File {
		part, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		shown["record "+f.Name] = string(text)
	}
	_, out, notes = invoke(t, "query", "1", "--server", fmt.Sprintf("http://ann:s3cret@%s/?s3cret=s3cret", away.Addr()))
	// The name of a parameter is no secret.
	shown["a command whose server is down"] = strings.ReplaceAll(out+notes, "?s3cret=", "")
	p.terminate(t)
	shown["the log"] = p.output.String()
	for where, text := range shown {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s shows a secret: ...%s...", where, text[max(0, i-200):min(len(text), i+40)])
		}
	}
}
