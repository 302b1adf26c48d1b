package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startLimit  = 30 * time.Second // long enough for a busy machine
	answerLimit = 10 * time.Second // how long an answer may take; the peer may have a backlog
	stopLimit   = 10 * time.Second // long enough for a last flush
	pause       = 20 * time.Millisecond
)

// logFile is the file, in the peer's directory, that gets the peer's output.
const logFile = "log"

// Running is a running peer.
type Running struct {
	UDP      string // host:port at which it receives
	Unixgram string // path at which it also receives, or empty
	PID      int

	at     place
	plan   plan
	cmd    *exec.Cmd
	ended  chan struct{} // closed after the process has ended
	cancel context.CancelFunc
	beside chan struct{} // closed after the function beside the peer has ended
}

// run starts the process and waits until it receives.
func run(ctx context.Context, at place, plan plan) (*Running, error) {
	log, err := os.Create(filepath.Join(at.dir, logFile))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(plan.command[0], plan.command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = at.dir, log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &Running{UDP: at.udp, Unixgram: at.unixgram, PID: cmd.Process.Pid, at: at, plan: plan, cmd: cmd,
		ended: make(chan struct{}), beside: make(chan struct{})}
	go func() {
		defer close(r.ended)
		_ = cmd.Wait() // if the process ends early, the next request fails
	}()
	// The function beside the peer runs until Stop, even if ctx ends earlier.
	var alive context.Context
	alive, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(r.beside)
		if plan.beside != nil {
			plan.beside(alive)
		}
	}()
	if err := r.ready(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, r.lastWords())
		return nil, errors.Join(err, r.end())
	}
	return r, nil
}

// ready waits until the peer listens and answers.
func (r *Running) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("did not listen within %v", startLimit))
	defer cancel()
	for {
		bound, err := r.bound()
		if err != nil {
			return err
		}
		if bound {
			if _, err := r.plan.received(ctx); err == nil {
				return nil
			}
		}
		select {
		case <-r.ended:
			return fmt.Errorf("ended at once: %v", r.cmd.ProcessState)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// bound reports whether sockets are bound to the peer's addresses. It sends no datagram to find
// that out, since the peer would count the datagram.
func (r *Running) bound() (bool, error) {
	if r.Unixgram != "" {
		if _, err := os.Stat(r.Unixgram); err != nil {
			return false, nil
		}
	}
	_, port, err := net.SplitHostPort(r.UDP)
	if err != nil {
		return false, err
	}
	number, err := net.LookupPort("udp", port)
	if err != nil {
		return false, err
	}
	table, err := os.ReadFile("/proc/net/udp")
	// A line such as "  77: 0100007F:1FBD 00000000:0000 07 ..." has the port after the local address.
	return bytes.Contains(table, fmt.Appendf(nil, ":%04X 00000000:0000 ", number)), err
}

// Received returns the peer's counters. If the peer reports its counters at each flush, they may be
// up to one flush interval old.
func (r *Running) Received(ctx context.Context) (Received, error) {
	select {
	case <-r.ended:
		return Received{}, fmt.Errorf("%s ended: %v\n%s", r.cmd.Path, r.cmd.ProcessState, r.lastWords())
	default:
		return r.plan.received(ctx)
	}
}

// Stop ends the peer and removes its files. It must be called once.
func (r *Running) Stop() error {
	return errors.Join(r.end(), os.RemoveAll(r.at.dir))
}

func (r *Running) end() (err error) {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has already ended
	select {
	case <-r.ended:
	case <-time.After(stopLimit):
		_ = r.cmd.Process.Kill()
		<-r.ended
		err = fmt.Errorf("%s did not stop within %v and was killed", r.cmd.Path, stopLimit)
	}
	r.cancel()
	<-r.beside
	return err
}

// lastWords returns the last lines that the peer printed.
func (r *Running) lastWords() string {
	const most = 10
	text, _ := r.at.read(logFile)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

func freeUDP() (string, error) {
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return socket.LocalAddr().String(), socket.Close()
}

func freeTCP() (string, error) {
	socket, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return socket.Addr().String(), socket.Close()
}
