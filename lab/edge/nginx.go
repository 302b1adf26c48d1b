package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// nginx is a process with one handler. It has no master: the process is the worker.
type nginx struct {
	handler
	address string
	cmd     *exec.Cmd
	exited  chan error
}

// start starts an nginx on a free port, and waits until it answers.
func start(ctx context.Context, h handler, dir string) (_ *nginx, err error) {
	dir = filepath.Join(dir, h.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &nginx{handler: h, address: l.Addr().String(), exited: make(chan error, 1)}
	if err := l.Close(); err != nil {
		return nil, err
	}

	write := exec.CommandContext(ctx, "lua/bench/conf.sh", dir, h.name)
	write.Env = append(os.Environ(), "LISTEN="+n.address, "INTERVAL=1")
	write.Stderr = os.Stderr
	conf, err := write.Output()
	if err != nil {
		return nil, fmt.Errorf("lua/bench/conf.sh: %w", err)
	}
	file, errorLog := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "error.log")
	if err := os.WriteFile(file, conf, 0o644); err != nil {
		return nil, err
	}
	n.cmd = pinned(context.Background(), 0, ".cache/nginx/usr/sbin/nginx", "-c", file, "-e", errorLog)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { n.exited <- n.cmd.Wait() }()
	if err := n.wait(ctx); err != nil {
		text, _ := os.ReadFile(errorLog)
		n.stop()
		return nil, fmt.Errorf("%w; nginx said: %s", err, text)
	}
	return n, nil
}

// pinned returns a command that runs on one processor only, if the machine has at least two. So
// nginx and wrk do not share a processor while they are measured.
func pinned(ctx context.Context, processor int, name string, arg ...string) *exec.Cmd {
	if runtime.NumCPU() < 2 {
		return exec.CommandContext(ctx, name, arg...)
	}
	return exec.CommandContext(ctx, "taskset", append([]string{"-c", strconv.Itoa(processor), name}, arg...)...)
}

// wait waits until nginx answers.
func (n *nginx) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", n.address)
		if err == nil {
			return c.Close()
		}
		select {
		case err := <-n.exited:
			n.exited <- err
			return fmt.Errorf("nginx ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (n *nginx) stop() {
	_ = n.cmd.Process.Kill()
	<-n.exited
}

// measured is the result of one turn of one handler.
type measured struct {
	rate float64 // requests/s
	cpu  float64 // CPU time of the worker, in us a request
}

// ask makes wrk send requests for a while, on 20 connections of one thread.
func (n *nginx) ask(ctx context.Context, turn time.Duration) (measured, error) {
	before, err := report.CPUTime(n.cmd.Process.Pid)
	if err != nil {
		return measured{}, err
	}
	wrk := pinned(ctx, 1, "wrk", "-t1", "-c20", "-d"+strconv.Itoa(int(turn.Seconds()))+"s", "http://"+n.address+"/")
	out, err := wrk.Output()
	if err != nil {
		return measured{}, fmt.Errorf("wrk: %w", err)
	}
	after, err := report.CPUTime(n.cmd.Process.Pid)
	if err != nil {
		return measured{}, err
	}
	return parse(string(out), after-before)
}

// parse reads this line of wrk: "155413 requests in 2.10s, 23.42MB read".
func parse(out string, cpu time.Duration) (measured, error) {
	for line := range strings.Lines(out) {
		var requests int
		var took string
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "%d requests in %s", &requests, &took); err != nil {
			continue
		}
		duration, err := time.ParseDuration(strings.TrimSuffix(took, ","))
		if err != nil || requests == 0 || strings.Contains(out, "Non-2xx") || strings.Contains(out, "Socket errors") {
			return measured{}, fmt.Errorf("wrk got wrong answers: %s", out)
		}
		return measured{rate: float64(requests) / duration.Seconds(),
			cpu: float64(cpu.Nanoseconds()) / 1e3 / float64(requests)}, nil
	}
	return measured{}, fmt.Errorf("wrk printed no number of requests: %s", out)
}
