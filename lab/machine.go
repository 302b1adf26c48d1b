package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/lab/report"
)

// thisMachine describes the machine on which the lab runs.
func thisMachine() (report.Machine, error) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return report.Machine{}, err
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return report.Machine{}, err
	}
	kilobytes, err := field(string(memory), "MemTotal:")
	if err != nil {
		return report.Machine{}, fmt.Errorf("/proc/meminfo: %w", err)
	}
	busy, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return report.Machine{}, err
	}
	first, _, _ := strings.Cut(string(busy), " ")
	average, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return report.Machine{}, fmt.Errorf("/proc/loadavg: %w", err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return report.Machine{}, fmt.Errorf("uname: %w", err)
	}
	return report.Machine{
		CPU:         cpuModel(string(info)),
		Cores:       runtime.NumCPU(),
		MemoryBytes: kilobytes << 10,
		Kernel:      unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:]),
		LoadAverage: average,
	}, nil
}

// cpuModel returns the model name in /proc/cpuinfo, which not every architecture has.
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// processors holds times of all processors since the machine's start, in the kernel's ticks.
type processors struct {
	all    uint64
	worked uint64 // time of processes and the kernel; interrupts do not count, since they belong to the load
	stolen uint64
}

// readProcessors reads the first line of /proc/stat.
func readProcessors(stat string) (p processors, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return p, fmt.Errorf("/proc/stat: begins with %.80q, not with the times of all processors", line)
	}
	for i, text := range fields[1:9] { // leaves out the last two fields, the time of guests, which user and nice include
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return p, fmt.Errorf("/proc/stat: %w", err)
		}
		p.all += n
		switch i {
		case 0, 1, 2: // user, nice, system
			p.worked += n
		case 7:
			p.stolen = n
		}
	}
	return p, nil
}

// stolenBy returns the share of processor time since `before` that the hypervisor gave to other
// machines.
func (p processors) stolenBy(before processors) float64 {
	if p.all <= before.all || p.stolen < before.stolen { // the kernel's counters may decrease
		return 0
	}
	return float64(p.stolen-before.stolen) / float64(p.all-before.all)
}

func readStat() (processors, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processors{}, err
	}
	return readProcessors(string(stat))
}
