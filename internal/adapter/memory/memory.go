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
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("find the memory of the program: %w", err)
	}
	defer maps.Close()
	parts, err := unchanging(maps, program)
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

// unchanging returns the parts that are mapped from a file and cannot be written to:
// to forget a page of them loses nothing.
func unchanging(maps io.Reader, file string) (parts []part, err error) {
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var p part
		var access, offset, device, inode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %s %s %s", &p.from, &p.to, &access, &offset, &device, &inode); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if !strings.Contains(access, "w") && strings.HasSuffix(lines.Text(), " "+file) {
			parts = append(parts, p)
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
