package cgroup

import (
	"fmt"
	"io/fs"
	"strings"
)

// CPU is the quota of a cgroup, and how often processes have used up the quota so far.
type CPU struct {
	Dir       string  // the cgroup's directory, with a slash at the front
	File      string  // the file in Dir that has the quota
	Cores     float64 // the quota: the processors that the cgroup may use on average
	Periods   float64 // periods in which something ran
	Throttled float64 // periods in which the quota was used up
	Seconds   float64 // time for which threads were throttled, summed over all processors
}

// CPUs returns the cgroups with a quota that limit the process, the process's own cgroup first.
func CPUs(root fs.FS) (found []CPU, err error) {
	groups, err := Of(root, "cpu")
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		text, err := fs.ReadFile(root, g.Dir+"/cpu.stat")
		if err != nil {
			continue // the process does not see the cgroup, or the cgroup has no such controller
		}
		c := CPU{Dir: "/" + g.Dir}
		c.File, c.Cores = g.quota(root)
		if c.Cores > 0 {
			c.read(string(text))
			found = append(found, c)
		}
	}
	return found, nil
}

// quota returns the file that holds the quota, and how many processors the cgroup may use on
// average. 0 means that there is no quota.
func (g Group) quota(root fs.FS) (file string, cores float64) {
	if g.Version == 1 {
		quota, limited := g.Number(root, "cpu.cfs_quota_us")
		period, _ := g.Number(root, "cpu.cfs_period_us")
		if !limited || quota <= 0 || period <= 0 { // -1 means no quota
			return "", 0
		}
		return "/" + g.Dir + "/cpu.cfs_quota_us", float64(quota) / float64(period)
	}
	text, err := fs.ReadFile(root, g.Dir+"/cpu.max")
	if err != nil {
		return "", 0
	}
	var quota, period float64
	if n, _ := fmt.Sscan(string(text), &quota, &period); n < 2 || !(quota > 0 && period > 0) { // "max 100000"
		return "", 0
	}
	return "/" + g.Dir + "/cpu.max", quota / period
}

// read reads cpu.stat. Version 1 counts throttled_time in nanoseconds.
func (c *CPU) read(text string) {
	for line := range strings.Lines(text) {
		var name string
		var n float64
		if read, _ := fmt.Sscan(line, &name, &n); read < 2 {
			continue
		}
		switch name {
		case "nr_periods":
			c.Periods = n
		case "nr_throttled":
			c.Throttled = n
		case "throttled_usec":
			c.Seconds = n / 1e6
		case "throttled_time":
			c.Seconds = n / 1e9
		}
	}
}
