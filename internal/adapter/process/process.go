// Package process reads what Linux reports about other processes on this machine.
package process

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Process describes a process, except for its number.
type Process struct {
	Command   string // the name of its program, at most 15 bytes; empty if the process has ended
	Container string // id of its container; empty if no container is recognised
}

// containerID matches the container's id in the cgroup names of container runtimes.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// Find looks up a process by its number. Fields that /proc does not give stay empty, as when the process
// has ended. If another process has the number by now, Find describes that one.
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
