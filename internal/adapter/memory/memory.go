//go:build linux

// Package memory gives memory of this process back to the kernel.
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

// FreeStart gives back what only a start needs: garbage, and those pages of the
// program's file that were read to initialise its packages. Of those there are
// hundreds which most processes never use, and 30 MB are resident after them. What is
// used again comes back page by page, from the kernel's cache. It collects garbage
// once, and may be called at any time.
func FreeStart() error {
	debug.FreeOSMemory()
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
		// One page of 4 KiB that is used again must not bring its neighbours of 2 MiB.
		err = errors.Join(err, p.advise(unix.MADV_NOHUGEPAGE), p.advise(unix.MADV_DONTNEED))
	}
	return err
}

// part is some addresses of this process.
type part struct{ from, to uintptr }

// unchanged returns the parts that are mapped from a file, cannot be written to, and
// have no page of this process' own: to forget a page of them loses nothing. What
// cannot be written to now may have been before: the loader of a position-independent
// program enters addresses, and a debugger its breakpoints. Dirty pages are no sign of
// that: all are which the kernel has not written to the disk since the file was made.
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
	// unix.Madvise wants a slice, which cannot be made of addresses that are not Go's.
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, p.from, p.to-p.from, uintptr(advice)); errno != 0 {
		return fmt.Errorf("advise the kernel (%d) on memory at %x: %w", advice, p.from, errno)
	}
	return nil
}
