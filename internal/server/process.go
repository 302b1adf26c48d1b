package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	runtimemetrics "runtime/metrics"
	"strconv"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
)

// serveProcess answers with the costs of the process. It takes tens of microseconds and stops no
// goroutine, so that requests do not disturb a measurement.
func (s *server) serveProcess(w http.ResponseWriter, r *http.Request) {
	figures := answer.Process{PID: os.Getpid(), UptimeSeconds: time.Since(s.started).Seconds()}
	figures.Listening = listeningOf(tenantOf(r), s.http, s.otlp.addr(), s.collector.Listening())
	readRuntime(&figures)
	if err := readKernel(&figures); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": figures}) // fails if the client is gone
}

// readRuntime reads figures of the Go runtime without stopping the world, unlike
// runtime.ReadMemStats.
func readRuntime(p *answer.Process) {
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

func readKernel(p *answer.Process) error {
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
	return readStat(p, stat)
}

// readStat reads two fields of proc_pid_stat(5): 20, num_threads, and 24, rss in pages. Field 2 is
// the name in parentheses, which may contain anything.
func readStat(p *answer.Process, stat []byte) error {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the fields from field 3 on
	if len(fields) < 22 {
		return fmt.Errorf("/proc/self/stat: %d fields after the name, want at least 22", len(fields))
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
