//go:build linux

package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"github.com/freshet-io/freshet/internal/lib/cgroup"
)

// Limit is how much memory this process may have, and where the limit comes from.
type Limit struct {
	Bytes int64
	Of    string // where the limit comes from, such as "the cgroup"
}

// FindLimit returns the smallest of: GOMEMLIMIT, the limit of each cgroup that the process is
// in (version 1 or 2), and the machine's memory. A source that cannot be read sets no limit.
func FindLimit() (Limit, error) {
	return findLimit(os.DirFS("/"), debug.SetMemoryLimit(-1))
}

// findLimit reads files below `root`. `goLimit` is the runtime's limit, math.MaxInt64 for none.
func findLimit(root fs.FS, goLimit int64) (Limit, error) {
	least := Limit{math.MaxInt64, "nothing"}
	consider := func(bytes int64, of string) {
		if bytes > 0 && bytes < least.Bytes {
			least = Limit{bytes, of}
		}
	}
	physical, err := physicalMemory(root)
	consider(physical, "the machine")
	bytes, errGroup := cgroupLimit(root)
	consider(bytes, "the cgroup")
	consider(goLimit, "GOMEMLIMIT")
	if least.Bytes == math.MaxInt64 {
		return Limit{},
			errors.Join(errors.New("find the memory limit: neither the machine nor a cgroup nor GOMEMLIMIT gives one"), err,
				errGroup)
	}
	return least, nil
}

// physicalMemory is MemTotal of proc_meminfo(5), in bytes.
func physicalMemory(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, err
	}
	var kibibytes int64
	_, after, _ := strings.Cut(string(text), "MemTotal:")
	if _, err := fmt.Sscanf(after, "%d kB", &kibibytes); err != nil {
		return 0, fmt.Errorf("/proc/meminfo: MemTotal: %w", err)
	}
	return kibibytes << 10, nil
}

// cgroupLimit returns the lowest limit of the process' cgroups and their parents, 0 for none.
// Version 1 writes "none" as a number near the largest, which exceeds the memory of any machine.
func cgroupLimit(root fs.FS) (least int64, err error) {
	groups, err := cgroup.Of(root, "memory")
	for _, g := range groups {
		file := "memory.max"
		if g.Version == 1 {
			file = "memory.limit_in_bytes"
		}
		if n, limited := g.Number(root, file); limited && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least, err
}

// Keep makes the runtime collect garbage more often as the process nears its limit, so that garbage
// alone does not get the process killed. The runtime begins at nine tenths of the limit, because
// threads, files and the kernel take some memory as well. If GOMEMLIMIT is set, Keep changes nothing.
func (l Limit) Keep() {
	if _, said := os.LookupEnv("GOMEMLIMIT"); !said {
		debug.SetMemoryLimit(l.Bytes / 10 * 9)
	}
}
