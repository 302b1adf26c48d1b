// Bench measures how much the log costs the service of this module, and how long garbage collection
// stops the service, with a million documents:
//
//	go run ./bench           takes about two minutes
//	go run ./bench --quick   takes half a minute, for a rough result
//
// It builds the service and starts it three times, with GOMAXPROCS=2: once with a log line for each
// request, and twice without. The difference between the two services without a log shows how large
// the noise is. The three services take turns in random order, under two loads. Under the first
// load, wrk sends the next request on each connection as soon as the previous request is answered.
// The second load sends requests at fixed times, at a quarter of the service's highest rate, and
// measures latency from those times. Bench compares services only within a round.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	documents := flag.Int("documents", 1_000_000, "documents in the index")
	pairs := flag.Int("pairs", 9, "rounds, each with and without the log")
	turn := flag.Duration("turn", 1500*time.Millisecond, "duration of one load")
	quick := flag.Bool("quick", false, "three rounds of 0.5 s")
	flag.Parse()
	if *quick {
		*pairs, *turn = 3, 500*time.Millisecond
	}
	if err := run(*documents, *pairs, *turn); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// script makes wrk request random routes and print its result as JSON.
const script = `
request = function()
  return wrk.format("GET", string.format("/v1/coverage?origin=%08d&destination=%08d", math.random(0, 99999999), math.random(0, 99999999)))
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"rate":%f,"p50":%f,"p99":%f,"errors":%d}\n', summary.requests / summary.duration * 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
`

// service is one of the three processes.
type service struct {
	name     string
	cmd      *exec.Cmd
	address  string
	before   status // the status of the service when it was ready
	wrk, due []load
}

// status is the answer of /-/status.
type status struct {
	Documents  int
	IndexBytes int     `json:"index_bytes"`
	Pauses     int     `json:"gc_pauses"`
	Long       int     `json:"gc_pauses_over_1ms"`
	Longest    float64 `json:"gc_pause_max_seconds"`
}

func run(documents, pairs int, turn time.Duration) (err error) {
	if _, err := exec.LookPath("wrk"); err != nil {
		return errors.New("wrk is not installed; install it: sudo apt-get install wrk")
	}
	dir, err := os.MkdirTemp("", "coverage-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lua := filepath.Join(dir, "routes.lua")
	if err := os.WriteFile(lua, []byte(script), 0o600); err != nil {
		return err
	}
	program, export := filepath.Join(dir, "coverage"), filepath.Join(dir, "coverage.ndjson.gz")
	if out, err := exec.Command("go", "build", "-o", program,
		"github.com/freshet-io/freshet/examples/coverage").CombinedOutput(); err != nil {
		return fmt.Errorf("build the service: %w\n%s", err, out)
	}
	fmt.Printf("%s, %d cores, load average before: %s\n", runtime.Version(), runtime.NumCPU(), loadAverage())
	if err := generate(program, export, documents); err != nil {
		return err
	}
	// This server reads the metrics, so that sending them has its usual cost.
	metrics, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer metrics.Close()
	go func() {
		packet := make([]byte, 1<<16)
		for err := error(nil); err == nil; {
			_, _, err = metrics.ReadFrom(packet)
		}
	}()

	var services []*service
	defer func() {
		for _, s := range services {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, name := range []string{"off", "on", "off again"} {
		s, err := start(name, dir, program, "--ndjson", export, "--refresh-interval", "0", "--metrics",
			metrics.LocalAddr().String(), "--log-requests="+strconv.FormatBool(name == "on"))
		if err != nil {
			return err
		}
		services = append(services, s)
		if s.before, err = s.status(); err != nil {
			return err
		}
	}
	capacity, err := runWrk(lua, services[0].address, 16, turn)
	if err != nil {
		return err
	}
	fmt.Printf("without a log: %.0f requests/s over 16 connections; \"asked when due\" sends a quarter of that\n",
		capacity.rate)
	takenBefore, totalBefore := stolen()
	for range pairs {
		for _, i := range rand.Perm(len(services)) {
			s := services[i]
			got, err := runWrk(lua, s.address, 2, turn)
			if err != nil {
				return err
			}
			s.wrk = append(s.wrk, got)
			if got, err = openLoop(s.address, capacity.rate/4, turn); err != nil {
				return err
			}
			s.due = append(s.due, got)
		}
	}
	fmt.Printf("%d rounds of %v per load; medians, with the least and largest values\n\n", pairs, turn)
	print("wrk, 2 connections", services, func(s *service) []load { return s.wrk })
	print("asked when due", services, func(s *service) []load { return s.due })
	for _, s := range services {
		now, err := s.status()
		if err != nil {
			return err
		}
		fmt.Printf("%-9s  %d documents, %.1f bytes each; GC pauses under load: %d, %d of them over 1 ms; "+
			"longest since the start: %.3f ms\n", s.name, now.Documents,
			float64(now.IndexBytes)/float64(now.Documents), now.Pauses-s.before.Pauses, now.Long-s.before.Long, now.Longest*1e3)
	}
	taken, total := stolen()
	fmt.Printf("other virtual machines used %.0f %% of the processors, and the load average was %s: "+
		"both lengthen pauses and latencies\n",
		100*float64(taken-takenBefore)/float64(max(1, total-totalBefore)), loadAverage())
	return nil
}

func generate(program, export string, documents int) error {
	f, err := os.Create(export)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.Command(program, "generate", "--documents", strconv.Itoa(documents))
	cmd.Stdout, cmd.Stderr = f, os.Stderr
	return cmd.Run()
}

// start starts a service, and waits until it is ready.
func start(name, dir, program string, args ...string) (*service, error) {
	logs, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	s := &service{name: name, cmd: exec.Command(program, append(args, "--listen", "127.0.0.1:0")...)}
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	s.cmd.Stderr = logs
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	address := regexp.MustCompile(`msg=listening address=(\S+)`)
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		text, err := os.ReadFile(logs.Name())
		if err != nil {
			return nil, errors.Join(err, s.stop())
		}
		if found := address.FindSubmatch(text); found != nil {
			s.address = string(found[1])
			if r, err := http.Get("http://" + s.address + "/ready"); err == nil {
				r.Body.Close()
				if r.StatusCode == http.StatusOK {
					return s, nil
				}
			}
		}
	}
	return nil, errors.Join(fmt.Errorf("the service %q is not ready after two minutes", name), s.stop())
}

func (s *service) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}

func (s *service) status() (now status, err error) {
	r, err := http.Get("http://" + s.address + "/-/status")
	if err != nil {
		return now, err
	}
	defer r.Body.Close()
	return now, json.NewDecoder(r.Body).Decode(&now)
}

func runWrk(lua, address string, connections int, length time.Duration) (l load, err error) {
	// wrk accepts only whole seconds.
	seconds := max(1, int((length + time.Second/2).Seconds()))
	out, err := exec.Command("wrk", "-t", "1", "-c", strconv.Itoa(connections), "-d", strconv.Itoa(seconds), "-s", lua,
		"http://"+address).CombinedOutput()
	if err != nil {
		return l, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	i := strings.LastIndex(string(out), "{")
	var got struct {
		Rate, P50, P99 float64
		Errors         int
	}
	if i < 0 {
		return l, fmt.Errorf("wrk printed no result:\n%s", out)
	}
	if err := json.NewDecoder(strings.NewReader(string(out[i:]))).Decode(&got); err != nil {
		return l, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	if got.Errors > 0 {
		return l, fmt.Errorf("wrk: %d requests failed\n%s", got.Errors, out)
	}
	return load{got.Rate, got.P50, got.P99}, nil
}

// stolen returns how long other virtual machines used this machine's processors, and the total time
// of the processors. Both are in the kernel's ticks.
func stolen() (taken, total uint64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil || i > 8 { // field 0 is a name; the fields after the eighth are included in other fields
			continue
		}
		if total += n; i == 8 {
			taken = n
		}
	}
	return taken, total
}

func loadAverage() string {
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && err != io.EOF {
		return "unknown"
	}
	return strings.Join(strings.Fields(line)[:3], " ")
}

// print prints the results of all services, compared with the first one.
func print(title string, services []*service, of func(*service) []load) {
	fmt.Printf("%-20s  %-22s  %-20s  %-20s  %s\n", title, "requests/s", "p50, ms", "p99, ms", "p99 to off, 95 % interval")
	column := func(loads []load, value func(load) float64) (values []float64) {
		for _, l := range loads {
			values = append(values, value(l))
		}
		return values
	}
	p99 := func(l load) float64 { return l.p99 }
	base := column(of(services[0]), p99)
	for i, s := range services {
		loads := of(s)
		ratio := ""
		if i > 0 {
			ratios := column(loads, p99)
			for round := range ratios {
				ratios[round] /= base[round]
			}
			low, high := bootstrap(ratios)
			ratio = fmt.Sprintf("%.3f [%.3f, %.3f]", median(ratios), low, high)
		}
		fmt.Printf("%-20s  %-22s  %-20s  %-20s  %s\n",
			s.name, spread(column(loads, func(l load) float64 { return l.rate }), 0),
			spread(column(loads, func(l load) float64 { return l.p50 }), 3), spread(column(loads, p99), 3), ratio)
	}
	fmt.Println()
}

func spread(values []float64, digits int) string {
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, median(values), digits, slices.Min(values), digits, slices.Max(values))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// bootstrap returns the 95 % confidence interval of the median. It draws random samples from values, and takes
// the medians of the samples.
func bootstrap(values []float64) (low, high float64) {
	const draws = 10_000
	medians := make([]float64, draws)
	drawn := make([]float64, len(values))
	for i := range medians {
		for j := range drawn {
			drawn[j] = values[rand.IntN(len(values))]
		}
		medians[i] = median(drawn)
	}
	slices.Sort(medians)
	return medians[draws/40], medians[draws-1-draws/40]
}
