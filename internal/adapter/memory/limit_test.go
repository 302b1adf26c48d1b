//go:build linux

package memory

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestFindLimit(t *testing.T) {
	const meminfo = "MemTotal:        8000000 kB\nMemFree: 5 kB\n"
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for _, c := range []struct {
		why   string
		files map[string]string
		go_   int64
		want  Limit
	}{
		{"a machine without limits", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n"}, math.MaxInt64,
			Limit{8_000_000 << 10, "the machine"}},
		{"a container that sees its cgroup as the root",
			map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
				"sys/fs/cgroup/memory.max": "524288000\n"}, math.MaxInt64, Limit{524_288_000, "the cgroup"}},
		{"a unit of systemd, whose slice is limited",
			map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/freshet.service\n",
				"sys/fs/cgroup/system.slice/freshet.service/memory.max": "max\n",
				"sys/fs/cgroup/system.slice/memory.max":                 "1073741824\n"}, math.MaxInt64,
			Limit{1 << 30, "the cgroup"}},
		{"version 1, in a container with the path of the host", map[string]string{"proc/meminfo": meminfo,
			"proc/self/cgroup":                           "5:cpu,cpuacct:/docker/1f\n4:memory:/docker/1f\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"}, math.MaxInt64,
			Limit{256 << 20, "the cgroup"}},
		{"version 1 without a limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, math.MaxInt64,
			Limit{8_000_000 << 10, "the machine"}},
		{"GOMEMLIMIT is the lowest limit",
			map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "524288000\n"},
			500_000_000, Limit{500_000_000, "GOMEMLIMIT"}},
		{"only GOMEMLIMIT can be read", nil, 500_000_000, Limit{500_000_000, "GOMEMLIMIT"}},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = file(text)
		}
		if got, err := findLimit(root, c.go_); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.why, got, err, c.want)
		}
	}
	if _, err := findLimit(fstest.MapFS{}, math.MaxInt64); err == nil {
		t.Error("for a machine whose files give no limit, findLimit returned one, want an error")
	}
	if got, err := FindLimit(); err != nil || got.Bytes < 1<<20 {
		t.Errorf("FindLimit on this machine returned %+v, error %v; want at least 1 MiB", got, err)
	}
}

func TestKeep(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "1GiB")
	Limit{Bytes: 2 << 30}.Keep()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("although GOMEMLIMIT is set, Keep changed the limit from %d to %d", before, got)
	}
}
