package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// resident returns the resident memory of a process, in bytes.
func resident(pid int) (uint64, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid), "status")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	kilobytes, err := field(string(text), "VmRSS:")
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return kilobytes << 10, nil
}

// field returns the number after a name at the beginning of a line.
func field(text, name string) (uint64, error) {
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, name); found && len(strings.Fields(rest)) > 0 {
			return strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("has no line %s", name)
}
