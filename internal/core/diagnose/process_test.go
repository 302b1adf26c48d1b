package diagnose

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

//go:noinline
func recurse(levels int) int {
	var frame [20]int
	frame[levels%len(frame)] = levels
	if levels == 0 {
		return 0
	}
	return recurse(levels-1) + frame[levels%len(frame)]
}

// processTime returns the processor time that this process has used.
func processTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stackGrowth relies on a property of Go's profiler: a stack continues through runtime.morestack to the
// function that had no room. The test fails if a Go release changes this property.
func TestProfilerSeesWhoGrows(t *testing.T) {
	var text bytes.Buffer
	if err := pprof.StartCPUProfile(&text); err != nil {
		t.Skip(err) // go test -cpuprofile already uses the profiler
	}
	// The profiler counts processor time, which passes more slowly than real time on a busy
	// machine.
	for begun := processTime(t); processTime(t)-begun < 400*time.Millisecond; {
		done := make(chan int)
		go func() { done <- recurse(400) }()
		<-done
	}
	pprof.StopCPUProfile()
	p, err := readProfile(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m := &moment{File: healthy().File, seconds: .4, cpu: p, missing: map[string]string{}}
	f := stackGrowth(m)
	if len(p) < 5 || !strings.Contains(f.Title, "recurse") {
		t.Errorf("of %d stacks: %s", len(p), f.Title)
	}
}

type guarded struct {
	mu  sync.Mutex
	sum [32]byte
}

//go:noinline
func (g *guarded) hold(held chan<- struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(held)
	for range 2000 { // meanwhile the other goroutine begins to wait for the lock
		g.sum = sha256.Sum256(g.sum[:])
		runtime.Gosched()
	}
}

//go:noinline
func (g *guarded) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sum[0]++
}

// A trace of this process names the holder of a lock and its waiters, the goroutine in a system
// call on a file, and the creator of goroutines.
func TestTrace(t *testing.T) {
	var text bytes.Buffer
	if err := trace.Start(&text); err != nil {
		t.Skip(err) // go test -trace already uses the tracer
	}
	var g guarded
	for range 20 {
		held := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() { g.hold(held) })
		<-held
		both.Go(g.wait)
		both.Wait()
	}
	written := writeToSlowPipe(t)
	trace.Stop()
	found, err := readTrace(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	first := func(p profiled, by func(stack) string) string {
		if groups := p.groups(by); len(groups) > 0 {
			return groups[0].name
		}
		return ""
	}
	if got := first(found.waits, stack.own); !strings.HasSuffix(got, "(*guarded).wait") {
		t.Errorf("waiter for the lock: %q", got)
	}
	if got := first(found.holders, stack.own); !strings.HasSuffix(got, "(*guarded).hold") {
		t.Errorf("holder of the lock: %q", got)
	}
	files := func(s stack) string {
		if !isFile(s) {
			return ""
		}
		return s.own()
	}
	if got := first(found.syscalls, files); !strings.Contains(got, "writeToSlowPipe") {
		t.Errorf("writer to the file: %q", got)
	}
	// Writer and reader both spend this time.
	if spent := found.syscalls.sum(isFile) / 1e9; spent <= 0 || spent > written.Seconds()*2.5 {
		t.Errorf("%v s in system calls on a file, want at most 2.5 times %v", spent, written)
	}
	// Each round has one goroutine that holds the lock and one that waits.
	if began := found.created.sum(func(s stack) bool {
		return s.in(ourModule+"internal/core/diagnose.TestTrace", "sync.(*WaitGroup).Go")
	}); began < 40 {
		t.Errorf("%v goroutines began", began)
	}
	if found.runnable <= 0 || found.seconds <= 0 {
		t.Errorf("goroutines waited for %v s in a trace of %v s, want both above 0", found.runnable, found.seconds)
	}
}

// writeToSlowPipe writes to a file whose system calls take long.
func writeToSlowPipe(t *testing.T) time.Duration {
	t.Helper()
	var ends [2]int
	if err := syscall.Pipe(ends[:]); err != nil { // the pipe blocks, as files do
		t.Fatal(err)
	}
	from, to := os.NewFile(uintptr(ends[0]), "from"), os.NewFile(uintptr(ends[1]), "to")
	defer from.Close()
	done := make(chan error)
	go func() {
		hash := sha256.New()
		_, err := io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{from}, make([]byte, 4<<10))
		done <- err
	}()
	begun := time.Now()
	for range 8 {
		if _, err := to.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begun)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return took
}
