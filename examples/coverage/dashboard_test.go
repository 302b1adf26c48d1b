package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startFreshet builds and starts a real Freshet.
func startFreshet(t *testing.T) (httpAddress, udp string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "freshet")
	build := exec.Command("go", "build", "-o", program, "./cmd/freshet")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build freshet: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "serve", "--data-dir", dir, "--http-listen", "127.0.0.1:0",
		"--distributor-otlp-grpc-listen", "127.0.0.1:0",
		"--dogstatsd-udp", "127.0.0.1:0", "--dogstatsd-unixgram", "", "--dogstatsd-unix", "")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("freshet printed:\n%s", &output)
		}
	})
	var listening struct {
		HTTP string `json:"http"`
		UDP  string `json:"dogstatsd_udp"`
	}
	eventually(t, time.Minute, func() error {
		text, err := os.ReadFile(filepath.Join(dir, "listening.json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &listening); err != nil {
			return err
		}
		_, err = get("http://" + listening.HTTP + "/-/ready")
		return err
	})
	return listening.HTTP, listening.UDP
}

// eventually calls `try` until it returns no error.
func eventually(t *testing.T, limit time.Duration, try func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(limit); ; {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still after %v: %v", limit, err)
		}
	}
}

func get(url string) ([]byte, error) {
	r, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, r.Status, body)
	}
	return body, err
}

// expressions returns the expressions of the dashboard, with the values of variables
// filled in as Grafana does.
func expressions(t *testing.T) (found []string) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q has no expression", p.Title)
		}
		for _, target := range p.Targets {
			found = append(found, strings.NewReplacer("$__rate_interval", "1m", "$__range", "30m").Replace(target.Expr))
		}
	}
	return found
}

// Every expression of the dashboard has an answer. Freshet watches the service under load, with a
// refresh that succeeds and one that fails.
func TestDashboard(t *testing.T) {
	t.Parallel()
	freshet, udp := startFreshet(t)

	export := filepath.Join(t.TempDir(), "coverage.ndjson")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(export, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(good + "\n{}\n")
	ctx, stop := context.WithCancel(t.Context())
	listening, ended := make(chan string, 1), make(chan error, 1)
	var logs bytes.Buffer
	go func() {
		ended <- run(ctx,
			[]string{"--listen", "127.0.0.1:0", "--ndjson", export, "--metrics", udp, "--refresh-interval", "0",
				"--log-requests"}, &logs,
			func(a net.Addr) { listening <- a.String() })
	}()
	var service string
	select {
	case service = <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() error { _, err := get("http://" + service + "/ready"); return err })

	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			query := "origin=01001000&destination=20040002"
			if i%10 == 0 {
				query = "origin=here"
			}
			_, _ = get("http://" + service + "/v1/coverage?" + query) // one answer in ten is a 400
		}
	})
	refresh := func(want int) {
		t.Helper()
		r, err := http.Post("http://"+service+"/-/refresh", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("a refresh was answered with %d, want %d", r.StatusCode, want)
		}
	}
	refresh(http.StatusOK)
	write("{}\n")
	refresh(http.StatusInternalServerError)

	for _, expr := range expressions(t) {
		eventually(t, 15*time.Second, func() error {
			body, err := get("http://" + freshet + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
			if err != nil {
				return err
			}
			var answer struct {
				Data struct {
					Result []struct{ Value [2]any }
				}
			}
			if err := json.Unmarshal(body, &answer); err != nil {
				return err
			}
			if len(answer.Data.Result) == 0 {
				return errors.New(expr + ": no data")
			}
			for _, series := range answer.Data.Result {
				if series.Value[1] == "NaN" {
					return fmt.Errorf("%s: %s", expr, body)
				}
			}
			return nil
		})
	}
	stop()
	load.Wait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, want := range []string{`msg="index refreshed" documents=1 `,
		`msg="documents refused" count=1 first="line 2: carrier: is missing"`,
		`msg="refresh failed, keeping the old index"`,
		`msg="coverage asked" code=200 origin=01001000 destination=20040002 offers=1`, `message="coverage asked"`,
		"msg=stopped"} {
		if !strings.Contains(logs.String(), want) {
			t.Errorf("the log has no line with %s", want)
		}
	}
	if t.Failed() {
		t.Logf("the service logged:\n%.5000s", &logs)
	}
}
