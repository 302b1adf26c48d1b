package connections

import (
	"fmt"
	"syscall"
)

const (
	// ceiling is how many connections there are at most unless the configuration says more.
	// An idle one takes about 20 KiB, so these are 160 MB.
	ceiling = 8192

	// enough is a limit of descriptors that is no reason for a warning.
	enough = 1024
)

// Shares are the parts of the descriptors of a process.
type Shares struct {
	Limit   uint64 // descriptors of the process
	TCP     int    // connections of HTTP and gRPC
	Streams int    // connections of Unix stream sockets
}

// Share divides the descriptors that this process may have: half of them are for files that
// keep data, three eighths for connections of HTTP and gRPC, an eighth for those of Unix
// stream sockets. Go has raised the limit to the hard one at the start.
func Share() (s Shares, err error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return s, fmt.Errorf("read the limit of open files: %w", err)
	}
	return share(limit.Cur), nil
}

func share(limit uint64) Shares {
	return Shares{Limit: limit, TCP: int(max(8, min(ceiling, limit/8*3))), Streams: int(max(8, min(1<<20, limit/8)))}
}

// MostTCP is TCP for a configuration that asks for more than usual.
func (s Shares) MostTCP() int { return int(s.Limit / 8 * 3) }

// For is the limit of descriptors that leaves room for so many connections of TCP.
func (s Shares) For(connections int) int { return (connections + 2) / 3 * 8 }

// Few reports whether the limit is low enough to say so.
func (s Shares) Few() bool { return s.Limit < enough }
