package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// plan says how much to measure.
type plan struct {
	rounds int
	slice  time.Duration // length of an open loop
	closed int           // closed loops with each logger and output, each as long as a slice
	pairs  int           // pairs of turns with slogring and without a log, for the goals
	turn   time.Duration // length of each half of a pair
	goals  bool          // measure only the goals
}

// pipeRate is the rate at which the slow pipe is read. A service that uses half a core logs more than
// that.
const pipeRate = 256 << 10 // bytes a second

// output is a destination of log lines.
type output struct {
	name  string
	names []string // the loggers to measure
	open  func(dir, logger string) (*sink, error)
}

// sink is an open output, and gives access to the lines that arrive there.
type sink struct {
	file  *os.File                      // the server writes its log to this file
	read  func() (io.ReadCloser, error) // reads what was written; nil if that is impossible
	hurry func()                        // makes the reader of a slow pipe read at full speed

	unread *os.File // the reading end of a blocked pipe, kept open since writes would fail otherwise
}

var outputs = []output{
	{"/dev/null", names, func(string, string) (*sink, error) {
		f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return &sink{file: f}, err
	}},
	{"file", names, func(dir, logger string) (*sink, error) {
		f, err := os.OpenFile(filepath.Join(dir, logger+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, err
		}
		return &sink{file: f, read: func() (io.ReadCloser, error) { return os.Open(f.Name()) }}, nil
	}},
	{fmt.Sprintf("pipe of %d KiB/s", pipeRate>>10), names, func(string, string) (*sink, error) { return newPipe() }},
	// Other loggers would hang for ever, so only the loggers for the goals are measured here.
	{"blocked pipe", goals, func(string, string) (*sink, error) {
		r, w, err := os.Pipe()
		return &sink{file: w, unread: r}, err
	}},
}

// newPipe returns a pipe whose reader is slow until hurry is called.
func newPipe() (*sink, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	var hurried atomic.Bool
	var all bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		const times = 32 // reads a second
		for {
			if _, err := io.CopyN(&all, r, pipeRate/times); err != nil {
				return
			}
			if !hurried.Load() {
				time.Sleep(time.Second / times)
			}
		}
	}()
	return &sink{
		file:  w,
		hurry: func() { hurried.Store(true) },
		read: func() (io.ReadCloser, error) {
			<-done // closed when both writing ends are closed
			return io.NopCloser(&all), r.Close()
		},
	}, nil
}

// server is a process with one logger and one output.
type server struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	sink   *sink
	client *client
	result *result
}

// result has the measurements of one logger. A list has one value for each round, unless noted.
type result struct {
	output, name string
	throughput   []float64 // requests a second, for each closed loop
	p50, p99     []float64 // milliseconds
	ratio        []float64 // p99 divided by the p99 without a log in the same round
	pairs        []float64 // like `ratio`, but in short turns
	cpu          []float64 // processor time a request, in microseconds
	inLog        []float64 // microseconds that a request spends in logger calls
	waited       []float64 // time that goroutines waited for a sync.Mutex, in ms a second
	behind       []float64 // 99th percentile of the client's own delay, in milliseconds
	unanswered   int       // requests without an answer, in all rounds
	sent         int
	gc           float64 // share of garbage collection in the server's processor time, over its whole life
	counts       counts  // the counts at the end
	exact        string  // text for the table: whether the counts are exact, or which are not
}

func start(o output, name, dir string) (*server, error) {
	sink, err := o.open(dir, name)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{
		name: name, sink: sink, cmd: exec.Command(self, "serve", name), result: &result{output: o.name, name: name},
	}
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	s.cmd.Stderr = os.Stderr
	s.cmd.ExtraFiles = []*os.File{sink.file}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("server with %s: %w", name, err), s.stop())
	}
	s.client = newClient(strings.TrimSpace(address))
	return s, nil
}

// stop ends the process and closes its connections and files.
func (s *server) stop() error {
	if s.client != nil {
		s.client.close()
	}
	err := errors.Join(s.stdin.Close(), s.cmd.Wait(), s.sink.file.Close())
	if s.sink.unread != nil {
		err = errors.Join(err, s.sink.unread.Close())
	}
	return err
}

func (s *server) counts(query string) (c counts, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.client.address+"/counts"+query, nil)
	if err != nil {
		return c, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return c, fmt.Errorf("counts of %s: %w", s.name, err)
	}
	defer answer.Body.Close()
	return c, json.NewDecoder(answer.Body).Decode(&c)
}

// open measures one open loop at a rate.
func (s *server) open(rate float64, length time.Duration) error {
	before, err := s.counts("")
	if err != nil {
		return err
	}
	got := s.client.openLoop(rate, length)
	after, err := s.counts("")
	if err != nil {
		return err
	}
	r := s.result
	requests := max(float64(after.Requests-before.Requests), 1)
	r.p50, r.p99, r.behind = append(r.p50, ms(got.p50)), append(r.p99, ms(got.p99)), append(r.behind, ms(got.behind))
	r.cpu = append(r.cpu, float64(after.CPU-before.CPU)/1e3/requests)
	r.inLog = append(r.inLog, float64(after.InLog-before.InLog)/1e3/requests)
	r.waited = append(r.waited, (after.Waited-before.Waited)*1e3/length.Seconds())
	r.sent += got.sent
	r.unanswered += got.unanswered
	return nil
}

// end takes the last counts, stops the server and reads its output.
func (s *server) end() (err error) {
	if s.sink.hurry != nil {
		s.sink.hurry()
	}
	c, err := s.counts("?close")
	if err := errors.Join(err, s.stop()); err != nil {
		return err
	}
	s.result.counts = c
	s.result.gc = c.GC / max(c.GC+c.User, 1e-9)
	if c.Stats == nil {
		return nil
	}
	s.result.exact, err = s.check(c)
	return err
}

// check compares slogring's counts with the calls and with the lines in the output.
func (s *server) check(c counts) (string, error) {
	st := c.Stats
	if st.Handled() != linesARequest*c.Requests {
		return fmt.Sprintf("NO: %d records of %d requests: %+v", st.Handled(), c.Requests, *st), nil
	}
	if s.sink.read == nil {
		return "yes", nil
	}
	r, err := s.sink.read()
	if err != nil {
		return "", err
	}
	defer r.Close()
	var lines, suppressed, lost uint64
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		line := scanner.Text()
		switch {
		case strings.Contains(line, `msg="log records suppressed"`):
			suppressed += number(line, "count")
		case strings.Contains(line, `msg="log records lost"`):
			lost += number(line, "info")
		default:
			lines++
		}
	}
	if lines != st.Written || suppressed != st.Suppressed || lost != st.Lost.Sum() || st.Cut+st.Failed+st.Waiting > 0 {
		return fmt.Sprintf("NO: %d lines, %d reported as suppressed and %d as lost: %+v", lines, suppressed, lost, *st),
			scanner.Err()
	}
	return "yes, and so are the lines", scanner.Err()
}

func number(line, key string) uint64 {
	_, rest, _ := strings.Cut(line, " "+key+"=")
	digits, _, _ := strings.Cut(rest, " ")
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}

// measure measures all loggers with one output, at a rate. With rate 0 it first finds the rate.
func measure(ctx context.Context, p plan, o output, dir string, rate *float64) (results []*result, err error) {
	var servers []*server
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.end())
		}
	}()
	for _, name := range o.names {
		if p.goals && !slices.Contains(goals, name) {
			continue
		}
		s, err := start(o, name, dir)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
		results = append(results, s.result)
	}
	for range p.closed {
		for _, i := range rand.Perm(len(servers)) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			rate, err := servers[i].client.closedLoop(p.slice)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", servers[i].name, err)
			}
			r := servers[i].result
			r.throughput = append(r.throughput, rate)
		}
	}
	if *rate == 0 {
		*rate = median(results[0].throughput) / 2
	}
	for round := range p.rounds {
		for _, i := range rand.Perm(len(servers)) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err := servers[i].open(*rate, p.slice); err != nil {
				return nil, err
			}
		}
		for _, r := range results {
			r.ratio = append(r.ratio, r.p99[round]/results[0].p99[round])
		}
	}
	var inGoals []*server
	for _, s := range servers {
		if slices.Contains(goals, s.name) {
			inGoals = append(inGoals, s)
		}
	}
	p99 := make([]float64, len(inGoals))
	for range p.pairs {
		for _, i := range rand.Perm(len(inGoals)) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			p99[i] = ms(inGoals[i].client.openLoop(*rate, p.turn).p99)
		}
		for i, s := range inGoals {
			s.result.pairs = append(s.result.pairs, p99[i]/p99[0])
		}
	}
	return results, nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// run measures all outputs, and prints the tables.
func run(ctx context.Context, p plan) error {
	dir, err := os.MkdirTemp("", "logging")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := printMachine(os.Stdout); err != nil {
		return err
	}
	var rate float64
	var all []*result
	begun := time.Now()
	for _, o := range outputs {
		fmt.Fprintf(os.Stderr, "measuring with %s\n", o.name)
		results, err := measure(ctx, p, o, dir, &rate)
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		all = append(all, results...)
	}
	print(os.Stdout, p, rate, all)
	fmt.Printf("\nTook %v.\n", time.Since(begun).Round(time.Second))
	return nil
}
