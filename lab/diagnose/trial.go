package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/diagnose"
	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/internal/core/remoteload"
)

// The load runs on the machine of the server. It leaves a healthy server four fifths of two processors.
const (
	metricsPerSecond = 70_000 // DogStatsD, 5,000 datagrams a second
	samplesPerSecond = 60_000 // remote write
	writeSeries      = 60_000 // each gets a sample a second
	writeBatch       = 200    // samples in each request, so 300 requests a second
	writeConnections = 8

	// newShare is the share of a flood's metrics that have a new tag value. That is 21,000 metrics a
	// second.
	newShare = 0.3

	// warmUp is the time until the series exist and the flight recorder is full. A record contains the
	// flight recorder's traces.
	warmUp = 8 * time.Second

	startTime = 30 * time.Second
)

// trial injects one fault into a server of its own.
type trial struct {
	program, dir, fault string
	keep                string // file that keeps the record; empty: no file
}

// run starts the server and the load, and runs the diagnosis.
func (t trial) run(ctx context.Context) (found *diagnose.Diagnosis, took time.Duration, err error) {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, 0, err
	}
	from := outsides[t.fault] // zero if the binary itself makes the fault
	if from.mount != nil {
		unmount, failed := from.mount(t.dir)
		if failed != nil {
			return nil, 0, failed
		}
		defer func() { err = errors.Join(err, unmount()) }()
	}
	if from.prepare != nil {
		if err := from.prepare(t.dir); err != nil {
			return nil, 0, err
		}
	}
	undo := func() error { return nil }
	defer func() { err = errors.Join(err, undo()) }() // runs after the server has ended
	s, err := t.start(ctx, from.args)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if from.begin != nil {
		end, err := from.begin(t.dir, s)
		if err != nil {
			return nil, 0, err
		}
		undo = end
	}

	loadCtx, endLoad := context.WithCancel(ctx)
	defer endLoad()
	group, loadCtx := errgroup.WithContext(loadCtx)
	if !from.quiet {
		group.Go(func() error { return t.sendDogStatsD(loadCtx, s.UDP) })
	}
	group.Go(func() error { return t.sendRemoteWrite(loadCtx, s.HTTP) })
	if err := wait(loadCtx, from.before); err != nil {
		return nil, 0, errors.Join(err, group.Wait())
	}
	begun := time.Now()
	if from.run != nil {
		group.Go(func() error { return from.run(loadCtx, t.dir, s) })
	}
	if err = wait(loadCtx, max(warmUp, from.wait)); err == nil {
		found, err = t.diagnose(ctx, s.HTTP)
	}
	took = time.Since(begun)
	endLoad()
	if ended := group.Wait(); ended != nil && !errors.Is(ended, context.Canceled) {
		err = errors.Join(ended, err)
	}
	return found, took, err
}

// wait waits for a while, or until ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// diagnose runs the command `freshet diagnose` as a user would.
func (t trial) diagnose(ctx context.Context, address string) (*diagnose.Diagnosis, error) {
	args := []string{"diagnose", "--json", "--server", address}
	if t.keep != "" {
		args = append(args, "--save", t.keep)
	}
	cmd := exec.CommandContext(ctx, t.program, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	found := new(diagnose.Diagnosis)
	return found, json.Unmarshal(text, found)
}

func (t trial) sendDogStatsD(ctx context.Context, address string) error {
	c := load.Standard()
	if t.fault == diagnose.Cardinality {
		c.NewShare = newShare
	}
	traffic, err := load.New(c)
	if err != nil {
		return err
	}
	sender, err := loadgen.Open(loadgen.Config{Network: "udp", Address: address})
	if err != nil {
		return err
	}
	_, err = sender.Run(ctx, traffic, loadgen.Pace{Rate: metricsPerSecond})
	return errors.Join(err, sender.Close())
}

func (t trial) sendRemoteWrite(ctx context.Context, address string) error {
	c := remoteload.Standard()
	c.Series, c.Batch, c.Interval, c.Begin = writeSeries, writeBatch, time.Second.Milliseconds(), time.Now().UnixMilli()
	traffic, err := remoteload.New(c)
	if err != nil {
		return err
	}
	writer, err := loadgen.NewWriter(loadgen.WriterConfig{URL: "http://" + address + "/api/v1/write",
		Connections: writeConnections}, traffic)
	if err != nil {
		return err
	}
	_, err = writer.Run(ctx, loadgen.WriterPace{Rate: samplesPerSecond})
	return err
}

// server is a running Freshet.
type server struct {
	HTTP string `json:"http"`
	UDP  string `json:"dogstatsd_udp"`

	cmd    *exec.Cmd
	log    string
	exited chan error
}

// start starts the server with the fault, on ports that the kernel chooses. Its log is beside the data
// directory, since the disk of the data directory may be broken.
func (t trial) start(ctx context.Context, more []string) (*server, error) {
	s := &server{log: t.dir + ".log", exited: make(chan error, 1)}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"serve", "--data-dir", t.dir, "--http-listen", "127.0.0.1:0", "--distributor-otlp-grpc-listen", "",
		"--dogstatsd-udp", "127.0.0.1:0", "--dogstatsd-unixgram", "", "--dogstatsd-unix", "", "--self-recorder-budgets=false"}
	for _, arg := range more {
		args = append(args, in(t.dir, arg))
	}
	s.cmd = exec.CommandContext(ctx, t.program, args...)
	s.cmd.Env = append(os.Environ(), "FRESHET_FAULT="+t.fault)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.exited <- s.cmd.Wait() }()
	for deadline := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		err := s.ready(t.dir)
		if err == nil {
			return s, nil
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(s.log)
			return nil, errors.Join(fmt.Errorf("%s is not ready after %v: %w\n%s", s.cmd, startTime, err, said), s.stop())
		}
	}
}

// ready reads the server's addresses, which it writes once it is ready.
func (s *server) ready(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "listening.json"))
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		return err
	}
	answer, err := http.Get("http://" + s.HTTP + "/-/ready")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// stop kills the server: nobody needs its data, and with a fault it drains slowly.
func (s *server) stop() error {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.exited
	return nil
}
