package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// limitSource is the program of the bare receiver.
const limitSource = "lab/limit/limit.c"

// buildLimit compiles lab/limit into `dir` and returns the program's path.
func buildLimit(ctx context.Context, source, dir string) (string, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return "", errors.New("lab/limit is a C program, and there is no C compiler: run apt-get install gcc libc6-dev")
	}
	program := filepath.Join(dir, "limit")
	if out, err := exec.CommandContext(ctx, cc, "-O2", "-Wall", "-o", program, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w\n%s", source, err, out)
	}
	return program, nil
}

// The bare receivers, by their argument to lab/limit.
const (
	recvfrom = "recvfrom"
	recvmmsg = "recvmmsg"
	sleep1   = "sleep 1"
	sleep5   = "sleep 5"
	gro      = "gro"
	unixRecv = "unixgram"
)

var bareNames = map[string]string{
	recvfrom: "bare recvfrom",
	recvmmsg: "bare recvmmsg",
	sleep1:   "bare recvmmsg, sleep 1 ms",
	sleep5:   "bare recvmmsg, sleep 5 ms",
	gro:      "bare UDP_GRO, GSO sender",
	unixRecv: "bare recv",
}

// bareReceiver returns a receiver that only counts; it does not even flush.
func bareReceiver(program, method string) receiver {
	return receiver{name: bareNames[method], group: report.Bare, segmented: method == gro, around: 200 * time.Millisecond,
		start: func(ctx context.Context, dir string, on cpus) (*running, error) {
			return startLimit(ctx, program, dir, on, strings.Fields(method))
		}}
}

func startLimit(ctx context.Context, program, dir string, on cpus, words []string) (*running, error) {
	network := udp
	if words[0] == unixRecv {
		network = unixgram
		words = append(words, filepath.Join(dir, "limit.sock"))
	}
	cmd := exec.CommandContext(ctx, program, words...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := on.start(cmd); err != nil {
		return nil, err
	}
	l := &limit{cmd: cmd, in: in, out: bufio.NewReader(out)}
	r := &running{received: l.received, stop: l.stop}
	var address string
	if _, err := fmt.Fscanln(l.out, &r.pid, &address); err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not say where it listens: %w", cmd, err), l.stop())
	}
	r.addresses = map[string]string{network: address}
	return r, nil
}

// limit is a running bare receiver.
type limit struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// received asks the program for its counts. limit.c describes the lines of the answer.
func (l *limit) received(context.Context) (counted, error) {
	if _, err := io.WriteString(l.in, "\n"); err != nil {
		return counted{}, fmt.Errorf("ask %s: %w", l.cmd, err)
	}
	var c counted
	var bytes, drops uint64
	if _, err := fmt.Fscanln(l.out, &c.datagrams, &bytes, &drops); err != nil {
		return counted{}, fmt.Errorf("answer of %s: %w", l.cmd, err)
	}
	return c, nil
}

// stop closes the program's input. The program then ends itself by a signal.
func (l *limit) stop() error {
	_ = l.in.Close()
	_, _ = io.Copy(io.Discard, l.out)
	err := l.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGTERM {
			return nil
		}
	}
	return err
}
