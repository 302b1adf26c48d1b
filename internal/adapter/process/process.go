// Package process tells what Linux says of other processes on this machine.
package process

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Process is what can be known of a process besides its number.
type Process struct {
	Command   string // the name of its program, at most 15 bytes; empty if it has ended
	Container string // id of its container; empty if it is in none that can be told
}

// containerID is how container runtimes name a cgroup after their container.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// Find looks a process up by its number. What /proc does not say stays empty: the
// process may have ended, or another may have its number by now.
func Find(pid int32) Process { return find("/proc", pid) }

func find(proc string, pid int32) Process {
	read := func(name string) string {
		text, err := os.ReadFile(fmt.Sprintf("%s/%d/%s", proc, pid, name))
		if err != nil {
			return ""
		}
		return string(text)
	}
	return Process{
		Command:   strings.TrimSpace(read("comm")),
		Container: containerID.FindString(read("cgroup")),
	}
}
