package cgroup

import (
	"slices"
	"testing"
	"testing/fstest"
)

// CPUs finds the quotas of a process in the forms in which kernels and containers show them.
func TestCPUs(t *testing.T) {
	const stat = "usage_usec 900\nnr_periods 159\nnr_throttled 156\nthrottled_usec 2500000\nnr_bursts 0\n"
	const stat1 = "nr_periods 159\nnr_throttled 156\nthrottled_time 2500000000\n"
	for _, c := range []struct {
		why   string
		files map[string]string
		want  []CPU
	}{
		{"no cgroup", map[string]string{"proc/self/cgroup": "0::/\n"}, nil},
		{"the root of version 2 has no quota",
			map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "usage_usec 900\n"}, nil},
		{"a container that sees its cgroup as the root", map[string]string{"proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/cpu.max": "20000 100000\n", "sys/fs/cgroup/cpu.stat": stat},
			[]CPU{{"/sys/fs/cgroup", "/sys/fs/cgroup/cpu.max", 0.2, 159, 156, 2.5}}},
		{"a unit without a quota in a slice that has one",
			map[string]string{"proc/self/cgroup": "0::/system.slice/freshet.service\n",
				"sys/fs/cgroup/system.slice/freshet.service/cpu.max":  "max 100000\n",
				"sys/fs/cgroup/system.slice/freshet.service/cpu.stat": stat,
				"sys/fs/cgroup/system.slice/cpu.max":                  "150000 100000\n",
				"sys/fs/cgroup/system.slice/cpu.stat":                 stat},
			[]CPU{{"/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/system.slice/cpu.max", 1.5, 159, 156, 2.5}}},
		{"both have one, its own first", map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max": "10000 100000\n", "sys/fs/cgroup/a/b/cpu.stat": "nr_periods 1\n",
			"sys/fs/cgroup/a/cpu.max": "30000 100000\n", "sys/fs/cgroup/a/cpu.stat": "nr_periods 2\n"},
			[]CPU{
				{"/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a/b/cpu.max", 0.1, 1, 0, 0},
				{"/sys/fs/cgroup/a", "/sys/fs/cgroup/a/cpu.max", 0.3, 2, 0, 0},
			}},
		{"version 1, with the path of the host in a container",
			map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/docker/1f\n0::/\n",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/cpu/cpu.stat": stat1},
			[]CPU{{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 0.5, 159, 156, 2.5}}},
		{"version 1, mounted under both names as one", map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.stat": stat1},
			[]CPU{{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", 0.5, 159, 156, 2.5}}},
		{"version 1, one of the names being a link", map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.stat": stat1,
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu/cpu.stat": stat1},
			[]CPU{{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 0.5, 159, 156, 2.5}}},
		{"version 1 without a quota", map[string]string{"proc/self/cgroup": "1:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu/cpu.stat": stat1}, nil},
		{"files that say nothing",
			map[string]string{"proc/self/cgroup": "0::/\n1\n", "sys/fs/cgroup/cpu.max": "\n",
				"sys/fs/cgroup/cpu.stat": "nr_periods\n\x00"}, nil},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, err := CPUs(root); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.why, got, err, c.want)
		}
	}
	if _, err := CPUs(fstest.MapFS{}); err == nil {
		t.Error("without /proc, CPUs returns no error, want one")
	}
}
