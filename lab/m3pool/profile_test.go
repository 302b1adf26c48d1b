package m3pool

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"syscall"
	"testing"
)

// profile is a CPU profile of the process, with 100 samples for each second of CPU.
type profile struct {
	tb   testing.TB
	file *os.File
}

func startProfile(tb testing.TB) profile {
	tb.Helper()
	file, err := os.Create(filepath.Join(tb.TempDir(), "cpu.pprof"))
	if err != nil {
		tb.Fatal(err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		tb.Fatal(err)
	}
	return profile{tb, file}
}

// accounting matches the first line of pprof's output:
//
//	Showing nodes accounting for 250ms, 59.52% of 420ms total
//	Showing nodes accounting for 0, 0% of 420ms total
var accounting = regexp.MustCompile(`(?m)^Showing nodes accounting for .*, ([\d.]+)% of`)

// growthPercent ends the profile and returns the share of its samples in which the runtime
// grew a stack.
func (p profile) growthPercent() float64 {
	p.tb.Helper()
	pprof.StopCPUProfile()
	if err := p.file.Close(); err != nil {
		p.tb.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "pprof", "-top", "-focus", `^runtime\.(newstack|copystack)$`, p.file.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.tb.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	found := accounting.FindSubmatch(out)
	if found == nil {
		p.tb.Fatalf("%s printed no line about all samples:\n%s", cmd, out)
	}
	percent, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		p.tb.Fatal(err)
	}
	return percent
}

// cpuTime returns the CPU time of the process in nanoseconds.
func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("BUG: getrusage of oneself: " + err.Error())
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
