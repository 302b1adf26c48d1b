// Package peerstsdb builds and runs other databases that accept Prometheus remote write, so that
// the lab can measure them beside Freshet with the same requests. They come from Go's module proxy,
// in versions that are pinned here. PromQL queries find the samples that a peer stored.
//
// Each peer has a file here with all of its settings, and a folder with the Go module that pins its
// version. So Freshet's module depends on none of them.
package peerstsdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/lab/repository"
)

// Peer is a database with which Freshet is compared.
type Peer struct {
	Name     string // the name in its usual spelling
	Version  string // version of the Go module
	Version2 bool   // whether it understands remote write 2.0
	Native   bool   // whether it keeps native histograms
	Rules    bool   // whether it evaluates rules

	folder  string   // the folder with its go.mod
	pkg     string   // the package to build
	flags   []string // flags of go build
	cgo     bool     // whether its releases have C code
	command func(place) ([]string, error)
	flush   string // path of a request that makes all acknowledged samples visible to queries; empty if none is needed
}

// With returns the peer under another name, with more flags on its command line.
func (p Peer) With(name string, flags ...string) Peer {
	plain := p.command
	p.Name = name
	p.command = func(at place) ([]string, error) {
		command, err := plain(at)
		return append(command, flags...), err
	}
	return p
}

// All returns every peer, beginning with the base of comparison.
func All() []Peer { return []Peer{prometheus, victoriaMetrics} }

// program returns the path of the peer's program below the cache directory.
func (p *Peer) program(dir string) string {
	return filepath.Join(dir, p.folder+"-"+p.Version, filepath.Base(p.pkg))
}

// Built reports whether this version was built below `dir`.
func (p *Peer) Built(dir string) bool {
	_, err := os.Stat(p.program(dir))
	return err == nil
}

// Build downloads and compiles the peer below `dir`. The output of the go command goes to out. The
// first build takes a few minutes.
func (p *Peer) Build(ctx context.Context, dir string, out io.Writer) error {
	program, err := filepath.Abs(p.program(dir))
	if err != nil {
		return err
	}
	folder, err := source()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-C", filepath.Join(folder, p.folder), "-trimpath", "-o", program}, p.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, p.pkg)...)
	cmd.Env = append(os.Environ(), "GOWORK=off", map[bool]string{false: "CGO_ENABLED=0", true: "CGO_ENABLED=1"}[p.cgo])
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s %s: %w", p.Name, p.Version, err)
	}
	return nil
}

// source returns the folder of this package. Nested modules are not part of our module, so their
// files cannot be embedded.
func source() (string, error) {
	root, err := repository.Dir()
	return filepath.Join(root, "lab/peers-tsdb"), err
}

// place says where a peer runs: its directory and its address.
type place struct {
	program string
	dir     string // directory for its files
	address string // host:port to listen on
	rules   string // path of a file with rules; empty if there are none
}

const (
	startLimit = 10 * time.Minute // long enough to read a log with millions of series
	stopLimit  = 5 * time.Minute  // long enough to save them
	pause      = 20 * time.Millisecond
)

// Running is a running peer.
type Running struct {
	PID int
	URL string // address of its HTTP API, such as http://127.0.0.1:1234

	peer  *Peer
	log   string // path of its output
	cmd   *exec.Cmd
	ended chan struct{} // closed after the process has ended
}

// Start starts a peer that was built in cache, with its files in `dir`. It returns once the peer answers.
func (p *Peer) Start(ctx context.Context, cache, dir string) (*Running, error) {
	return p.StartWithRules(ctx, cache, dir, "")
}

// StartWithRules starts a peer that evaluates the rules of a file.
func (p *Peer) StartWithRules(ctx context.Context, cache, dir, rules string) (*Running, error) {
	r, err := p.start(cache, dir, rules)
	if err == nil {
		err = r.ready(ctx)
		if err != nil {
			err = errors.Join(fmt.Errorf("%w\n%s", err, r.lastWords()), r.Stop())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start %s %s: %w", p.Name, p.Version, err)
	}
	return r, nil
}

func (p *Peer) start(cache, dir, rules string) (*Running, error) {
	program, err := filepath.Abs(p.program(cache))
	if err != nil {
		return nil, err
	}
	socket, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	at := place{program: program, dir: dir, address: socket.Addr().String(), rules: rules}
	if err := socket.Close(); err != nil {
		return nil, err
	}
	command, err := p.command(at)
	if err != nil {
		return nil, err
	}
	r := &Running{peer: p, URL: "http://" + at.address, log: filepath.Join(dir, "log"), ended: make(chan struct{})}
	log, err := os.Create(r.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r.cmd = exec.Command(command[0], command[1:]...)
	r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = dir, log, log
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	r.PID = r.cmd.Process.Pid
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // if the process ends early, the next request fails
	}()
	return r, nil
}

// ready waits until the peer answers.
func (r *Running) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("did not answer within %v", startLimit))
	defer cancel()
	for {
		err := r.get(ctx, "/-/ready")
		if err == nil {
			return nil
		}
		select {
		case <-r.ended:
			return fmt.Errorf("ended at once: %v", r.cmd.ProcessState)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// Flush returns once queries find all acknowledged samples.
func (r *Running) Flush(ctx context.Context) error {
	if r.peer.flush == "" {
		return nil
	}
	return r.get(ctx, r.peer.flush)
}

func (r *Running) get(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("GET %s: %s", request.URL, answer.Status)
	}
	return err
}

// Stop ends the peer.
func (r *Running) Stop() error {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has already ended
	select {
	case <-r.ended:
		return nil
	case <-time.After(stopLimit):
		_ = r.cmd.Process.Kill()
		<-r.ended
		return fmt.Errorf("%s did not stop within %v and was killed", r.peer.Name, stopLimit)
	}
}

// lastWords returns the last lines that the peer printed.
func (r *Running) lastWords() string {
	const most = 10
	text, _ := os.ReadFile(r.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
