package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/record"
)

// A slow disk: goroutines spend long in system calls on files. Their total time in such calls, in
// seconds per second, is the average number of goroutines in such calls.
const (
	fileUsual = 0.10
	fileBad   = 0.60

	// Calls that take this long on average wait for the disk. Many quick calls are only load. On a
	// healthy disk a write takes microseconds and a sync some milliseconds.
	callUsual = 0.005 // seconds
	callBad   = 0.050
)

// fileCalls are the functions, or prefixes of functions, by which Go reaches files.
var fileCalls = []string{
	"os.(*File).", "os.Rename", "os.Remove", "os.OpenFile", "os.Truncate", "os.Mkdir", "os.ReadFile", "os.WriteFile",
	"os.ReadDir",
	"syscall.Fsync", "syscall.Ftruncate", ourModule + "internal/core/journal.", ourModule + "internal/core/segment.",
	storeModule + "tsdb/wlog.", storeModule + "tsdb/chunks.", "golang.org/x/sys/unix.Fdatasync",
	"golang.org/x/sys/unix.Fallocate", "golang.org/x/sys/unix.Msync",
	ourModule + "internal/adapter/files.", storeModule + "tsdb/fileutil.", "go.etcd.io/bbolt.fdatasync",
}

// isFile reports whether a stack is in a system call on a file.
func isFile(s stack) bool {
	if len(s) == 0 || !s.in(fileCalls...) || s.has("internal/poll.runtime_pollWait") { // a wait for a pipe or a timer
		return false
	}
	return slices.ContainsFunc(s[:min(4, len(s))], func(name string) bool {
		return strings.HasPrefix(name, "syscall.") || strings.HasPrefix(name, "internal/runtime/syscall") ||
			strings.HasPrefix(name, "golang.org/x/sys/unix.")
	})
}

func disk(m *moment) finding {
	calls := profiled{}
	for _, s := range m.trace.syscalls {
		if isFile(s.stack) {
			calls = append(calls, s)
		}
	}
	busy, perCall := 0.0, 0.0
	if m.trace.seconds > 0 {
		busy = calls.total() / 1e9 / m.trace.seconds
	}
	if n := calls.counted(func(stack) bool { return true }); n > 0 {
		perCall = calls.total() / 1e9 / n
	}
	// The slowest group of stacks counts, so that quick reads elsewhere do not hide it.
	places := calls.groups(stack.own)
	for _, g := range places {
		if g.value/1e9 > fileUsual*m.trace.seconds {
			perCall = max(perCall, g.value/1e9/g.count)
		}
	}
	standing := m.goroutines.sum(isFile)
	stages := m.slowStages()

	f := finding{fine: fmt.Sprintf("the disk: on average %s goroutines are in system calls on files "+
		"(up to %.2g is usual); in the slowest code path a call takes %s on average", average(busy), fileUsual,
		seconds(perCall))}
	if len(stages) > 0 {
		f.fine += "; " + strings.Join(stages, ", ")
	}
	f.Name = Disk
	f.Score = ramp(busy, fileUsual, fileBad) * ramp(perCall, callUsual, callBad)
	f.Title = fmt.Sprintf("A slow disk: on average %s goroutines wait for it, and a call takes %s",
		average(busy), seconds(perCall))
	f.Because = fmt.Sprintf("on average %s goroutines are in system calls on files (score 0 up to %.2g, 1 from "+
		"%.2g), and a call takes %s in the slowest code path (%s to %s)",
		average(busy), fileUsual, fileBad, seconds(perCall), seconds(callUsual), seconds(callBad))
	if !m.has(record.Trace) { // only a snapshot, goroutine.pprof, remains
		f.Score = min(0.6, ramp(standing, 0, 3))
		f.Title = fmt.Sprintf("A slow disk: %.0f goroutines were in system calls on files", standing)
		f.Because = fmt.Sprintf("%.0f goroutines were in system calls on files when the record began; "+
			"without trace.out it is unknown for how long", standing)
	}
	for _, g := range largest(places, 3, calls.total()) {
		f.Evidence = append(f.Evidence, Evidence{
			What: fmt.Sprintf("%s: %.0f system calls took %s each on average, and together %.2g s of each second",
				short(g.name), g.count, seconds(g.value/1e9/g.count), g.value/1e9/max(m.trace.seconds, 1e-3)),
			Stack: g.stack.shown(),
		})
	}
	f.Evidence = append(f.Evidence, Evidence{What: "how long batches were in the stages that write", Figures: stages})
	f.Next = "Look at the disk (iostat -x 1: await, %util) and at what else writes to it; give data_dir its own disk. " +
		"With aggregator.fsync: interval and store.wal_fsync: interval no request waits for a sync, but a power loss may " +
		"cost a second of windows and a minute of remote write."
	return f
}

// slowStages returns how long batches were in the stages that write to the disk.
func (m *moment) slowStages() (texts []string) {
	for _, l := range m.grown("freshet_stage_seconds") {
		if stage := l.labels["stage"]; l.count > 0 && (stage == "journal" || stage == "append") {
			texts = append(texts, fmt.Sprintf("stage %s of %s: %s per batch on average",
				stage, l.labels["input"], seconds(l.value/l.count)))
		}
	}
	slices.Sort(texts)
	return texts
}
