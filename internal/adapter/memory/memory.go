//go:build linux

// Package memory returns memory of this process to the kernel.
package memory

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// FreeStart returns memory that is needed only during a start: garbage, and pages of the program's file
// that were read to initialise its packages. FreeStart collects garbage once, and may be called at any time.
func FreeStart() error {
	debug.FreeOSMemory()
	return FreeProgram()
}

// FreeProgram returns the pages of the program's file. Most processes need hundreds of its packages only at
// the start, but their pages keep 30 MB resident. If a page is used again, the kernel brings it back from its
// cache. FreeProgram may be called at any time.
func FreeProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program of this process: %w", err)
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("find the memory of the program: %w", err)
	}
	defer maps.Close()
	parts, err := unchanged(maps, program)
	if err != nil {
		return fmt.Errorf("read the map of this process' memory: %w", err)
	}
	for _, p := range parts {
		// When a 4 KiB page is used again, the kernel must not bring back the 2 MiB around it.
		err = errors.Join(err, p.advise(unix.MADV_NOHUGEPAGE), p.advise(unix.MADV_DONTNEED))
	}
	return err
}

// part is a range of this process' addresses.
type part struct{ from, to uintptr }

// unchanged returns the parts that are mapped from `file`, are not writable, and have no private page of
// this process: the kernel can read their pages again from the file. A part that is not writable now may
// have been written before: the loader of a position-independent program writes addresses, and a
// debugger writes breakpoints. The number of dirty pages does not reveal such writes, because all pages
// of a new file are dirty until the kernel writes them to the disk.
func unchanged(smaps io.Reader, file string) (parts []part, err error) {
	lines := bufio.NewScanner(smaps)
	for candidate := false; lines.Scan(); {
		line := lines.Text()
		name, value, _ := strings.Cut(line, ":")
		if strings.Contains(name, " ") { // a mapping; its figures follow
			var p part
			var access string
			if _, err := fmt.Sscanf(line, "%x-%x %s", &p.from, &p.to, &access); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			candidate = !strings.Contains(access, "w") && strings.HasSuffix(line, " "+file)
			if candidate {
				parts = append(parts, p)
			}
			continue
		}
		own := name == "Anonymous" || name == "Swap"
		if candidate && own && strings.TrimSpace(value) != "0 kB" {
			candidate = false
			parts = parts[:len(parts)-1]
		}
	}
	return parts, lines.Err()
}

func (p part) advise(advice int) error {
	// unix.Madvise wants a slice, which cannot be made of addresses outside Go's memory.
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, p.from, p.to-p.from, uintptr(advice)); errno != 0 {
		return fmt.Errorf("madvise(%d) memory at %x: %w", advice, p.from, errno)
	}
	return nil
}
