package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/lab/report"
)

// Our receivers, by their names on the page.
const (
	collectorName = "Freshet, collector"
	joinedName    = "Freshet, collector, UDP_GRO"
	allInOneName  = "Freshet, all in one"
)

// buildFreshet compiles the server like a release. Its version is the commit.
func buildFreshet(ctx context.Context, dir string) (string, error) {
	version, err := firstLine(ctx, "git", "describe", "--tags", "--always", "--dirty")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "freshet")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o",
		program, "./cmd/freshet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build freshet: %w\n%s", err, out)
	}
	return program, nil
}

// firstLine returns the first line that a command prints.
func firstLine(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line, nil
}

// collectorReceiver is `freshet serve --role collector` with every feature on. It flushes a window each
// second.
func collectorReceiver(program string) receiver {
	return receiver{
		name: collectorName, group: report.Ours, flush: time.Second, unixgram: true, around: time.Second,
		start: serve(program, "collector"),
	}
}

// joinedReceiver is collectorReceiver with dogstatsd.gro: the kernel joins the datagrams of a sender.
func joinedReceiver(program string) receiver {
	return receiver{
		name: joinedName, group: report.Ours, flush: time.Second, segmented: true, aside: true, around: time.Second,
		start: serve(program, "collector", "--dogstatsd-gro"),
	}
}

// allInOneReceiver is `freshet serve`. It flushes tiles of ten seconds.
func allInOneReceiver(program string) receiver {
	return receiver{
		name: allInOneName, group: report.Ours, stores: true, flush: 10 * time.Second, unixgram: true,
		around: 2 * time.Second, start: serve(program, "all"),
	}
}

func serve(program, role string, settings ...string) func(context.Context, string, cpus) (*running, error) {
	return func(ctx context.Context, dir string, on cpus) (*running, error) {
		f, err := startFreshet(ctx, program, dir, on, append([]string{"--role", role}, settings...)...)
		if err != nil {
			return nil, err
		}
		return f.running(), nil
	}
}

// freshet is a running Freshet.
type freshet struct {
	HTTP     string `json:"http"`
	UDP      string `json:"dogstatsd_udp"`
	Unixgram string `json:"dogstatsd_unixgram"`

	cmd    *exec.Cmd
	log    string // path of its output
	exited chan error
}

// startTime is how long a server may take to become ready, and to end. It may read and save millions of series.
const startTime = 10 * time.Minute

// startFreshet starts a server on ports that the kernel chooses, and waits until it is ready. It shows the
// server's log only if the server ends early.
func startFreshet(ctx context.Context, program, dir string, on cpus, settings ...string) (*freshet, error) {
	f := &freshet{log: filepath.Join(dir, "freshet.log"), exited: make(chan error, 1)}
	log, err := os.Create(f.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// The self-observing features are off, since the books would count their samples together with the
	// samples of the load.
	f.cmd = exec.CommandContext(ctx, program,
		append([]string{"serve", "--self-probe=false", "--self-metrics=false", "--data-dir", dir, "--http-listen",
			"127.0.0.1:0",
			"--distributor-otlp-grpc-listen", "", "--dogstatsd-udp", "127.0.0.1:0", "--dogstatsd-unix", ""}, settings...)...)
	f.cmd.Stdout, f.cmd.Stderr = log, log
	if err := on.start(f.cmd); err != nil {
		return nil, err
	}
	go func() { f.exited <- f.cmd.Wait() }()
	for deadline := time.Now().Add(startTime); ; {
		if err = f.ready(ctx, dir); err == nil {
			return f, nil
		}
		select {
		case ended := <-f.exited:
			f.exited <- ended
			said, _ := os.ReadFile(f.log)
			return nil, fmt.Errorf("%s ended while it started: %w\n%s", f.cmd, ended, said)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("%s is not ready after %v: %w", f.cmd, startTime, err), f.stop())
		}
	}
}

// ready reads the server's addresses, which it writes once it is ready.
func (f *freshet) ready(ctx context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "listening.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, f); err != nil {
		return err
	}
	_, err = f.get(ctx, "/-/ready", nil)
	return err
}

func (f *freshet) get(ctx context.Context, path string, header http.Header) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, header)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", request.URL, answer.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}

// ask sends a request to the API, and decodes the answer.
func (f *freshet) ask(ctx context.Context, path string, header http.Header, data any) error {
	body, err := f.get(ctx, path, header)
	if err != nil {
		return err
	}
	envelope := struct{ Data any }{data}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// running returns the server as a running receiver.
func (f *freshet) running() *running {
	return &running{
		pid: f.cmd.Process.Pid, addresses: map[string]string{udp: f.UDP, unixgram: f.Unixgram}, stop: f.stop,
		received: func(ctx context.Context) (counted, error) {
			books, err := f.books(ctx)
			return counted{metrics: books.Samples.Received}, err
		},
		allocated: func(ctx context.Context) (uint64, error) {
			figures, err := f.process(ctx)
			return figures.AllocatedObjectsTotal, err
		},
	}
}

// figures are the figures that the server reports about its process.
type figures struct {
	HeapLiveBytes         uint64 `json:"heap_live_bytes"`
	AllocatedObjectsTotal uint64 `json:"allocated_objects_total"`
}

func (f *freshet) process(ctx context.Context) (p figures, err error) {
	err = f.ask(ctx, "/api/v1/status/process", nil, &p)
	return p, err
}

// books returns the books of the server's only tenant.
func (f *freshet) books(ctx context.Context) (books ledger.Tenant, err error) {
	err = f.ask(ctx, "/api/v1/status/ledger", nil, &books)
	return books, err
}

// booksOf returns the books of one of several tenants.
func (f *freshet) booksOf(ctx context.Context, tenant string) (books ledger.Tenant, err error) {
	err = f.ask(ctx, "/api/v1/status/ledger", http.Header{"X-Scope-Orgid": {tenant}}, &books)
	return books, err
}

func (f *freshet) stop() error {
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-f.exited:
		return err
	case <-time.After(startTime):
		_ = f.cmd.Process.Kill()
		return fmt.Errorf("%s still ran %v after SIGTERM", f.cmd, startTime)
	}
}

// probes are the results of the server's own probes, by path, in seconds.
type probes map[string]*histogram.FloatHistogram

// withFreshet runs a server until `do` returns.
func (l *lab) withFreshet(ctx context.Context, role string, do func(*freshet) error, settings ...string) error {
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f, err := startFreshet(ctx, l.freshet, dir, nil, append([]string{"--role", role}, settings...)...)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.stop())
}
