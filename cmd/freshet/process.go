package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	runtimemetrics "runtime/metrics"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/internal/role/collector"
)

// processFigures is what the process costs: GET /api/v1/status/process. Totals are
// since it started, those of the operating system since before a restart in place.
// The names of the fields stay.
type processFigures struct {
	PID           int       `json:"pid"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Listening     listening `json:"listening"`

	CPUUserSeconds   float64 `json:"cpu_user_seconds"`
	CPUSystemSeconds float64 `json:"cpu_system_seconds"`
	MaxResidentBytes uint64  `json:"max_resident_bytes"`
	ResidentBytes    uint64  `json:"resident_bytes"`
	Threads          int     `json:"threads"`

	HeapLiveBytes         uint64  `json:"heap_live_bytes"` // after the last collection; 0 before the first
	HeapObjects           uint64  `json:"heap_objects"`
	AllocatedObjectsTotal uint64  `json:"allocated_objects_total"`
	AllocatedBytesTotal   uint64  `json:"allocated_bytes_total"`
	GCCycles              uint64  `json:"gc_cycles"`
	GCCPUSeconds          float64 `json:"gc_cpu_seconds"` // counted at the end of each collection
	Goroutines            int     `json:"goroutines"`
}

// serveProcess answers in tens of microseconds and stops nobody: who measures asks
// during the measurement.
func (s *server) serveProcess(w http.ResponseWriter, r *http.Request) {
	figures := processFigures{PID: os.Getpid(), UptimeSeconds: time.Since(s.started).Seconds()}
	figures.Listening = listeningOf(tenantOf(r), s.http, s.otlp.addr(), s.collector.Listening())
	figures.readRuntime()
	if err := figures.readKernel(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": figures}) // fails if the client went away
}

// listeningOf is where a tenant is listened to. The addresses of others are none of its
// business, and what it sends there is in the books of others.
func listeningOf(tenant string, servers httpServers, otlp string, sockets []collector.Listening) listening {
	l := listening{PID: os.Getpid()}
	if servers[0].tenant == tenant { // OTLP over gRPC is for those of http.tenant
		l.OTLPGRPC = otlp
	}
	for _, h := range servers {
		if h.tenant == tenant {
			l.HTTP = h.addr()
			break
		}
	}
	sockets = slices.DeleteFunc(sockets, func(s collector.Listening) bool { return s.Tenant != tenant })
	l.DogStatsDUDP = first(sockets, "udp").Address
	l.DogStatsDUnixgram = absolute(first(sockets, "unixgram").Address)
	l.DogStatsDUnix = absolute(first(sockets, "unix").Address)
	return l
}

// readRuntime asks the Go runtime, by a way that does not stop the world as
// runtime.ReadMemStats does.
func (p *processFigures) readRuntime() {
	samples := []runtimemetrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/objects:objects"},
		{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/sched/goroutines:goroutines"},
	}
	runtimemetrics.Read(samples)
	p.HeapLiveBytes, p.HeapObjects = samples[0].Value.Uint64(), samples[1].Value.Uint64()
	p.AllocatedObjectsTotal, p.AllocatedBytesTotal = samples[2].Value.Uint64(), samples[3].Value.Uint64()
	p.GCCycles, p.GCCPUSeconds = samples[4].Value.Uint64(), samples[5].Value.Float64()
	p.Goroutines = int(samples[6].Value.Uint64())
}

func (p *processFigures) readKernel() error {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return fmt.Errorf("getrusage: %w", err)
	}
	p.CPUUserSeconds = time.Duration(u.Utime.Nano()).Seconds()
	p.CPUSystemSeconds = time.Duration(u.Stime.Nano()).Seconds()
	p.MaxResidentBytes = uint64(u.Maxrss) << 10
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	return p.readStat(stat)
}

// readStat takes two fields of proc_pid_stat(5): 20, num_threads, and 24, rss in
// pages. The second is the name in parentheses, which may hold anything.
func (p *processFigures) readStat(stat []byte) error {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // from 3
	if len(fields) < 22 {
		return fmt.Errorf("/proc/self/stat: %d fields behind the name, not 22 or more", len(fields))
	}
	threads, err := strconv.Atoi(string(fields[20-3]))
	if err != nil {
		return fmt.Errorf("/proc/self/stat: num_threads: %w", err)
	}
	pages, err := strconv.ParseUint(string(fields[24-3]), 10, 64)
	if err != nil {
		return fmt.Errorf("/proc/self/stat: rss: %w", err)
	}
	p.Threads, p.ResidentBytes = threads, pages*uint64(os.Getpagesize())
	return nil
}
