package connections

import (
	"fmt"
	"syscall"
)

const (
	// ceiling is the default limit of connections. An idle connection takes about 20 KiB, so
	// idle connections take at most 160 MB.
	ceiling = 8192

	// peers is the most connections of other processes: two of each other node, and one of each of 10,000 collectors.
	peers = 16_384

	// enough is the limit of descriptors below which a warning is logged.
	enough = 1024
)

// Shares divides the descriptors of a process.
type Shares struct {
	Limit   uint64 // descriptors of the process
	TCP     int    // connections of HTTP and gRPC
	Streams int    // connections of Unix stream sockets
	Peers   int    // connections of other processes of a cluster, to a node
}

// Share divides this process' descriptors: half for data files, three eighths for HTTP and gRPC
// connections, an eighth for connections of Unix stream sockets. A node has an eighth of its descriptors, less
// for data files, for the connections of other nodes and of collectors. Go's runtime has raised the
// soft limit to the hard limit at the start.
func Share() (s Shares, err error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return s, fmt.Errorf("read the limit of open files: %w", err)
	}
	return share(limit.Cur), nil
}

func share(limit uint64) Shares {
	return Shares{Limit: limit, TCP: int(max(8, min(ceiling, limit/8*3))), Streams: int(max(8, min(1<<20, limit/8))),
		Peers: int(max(8, min(peers, limit/8)))}
}

// MostTCP returns the value that TCP would have without the default ceiling.
func (s Shares) MostTCP() int { return int(s.Limit / 8 * 3) }

// For is the inverse of MostTCP: it returns the limit of descriptors that leaves room for this
// many TCP connections.
func (s Shares) For(connections int) int { return (connections + 2) / 3 * 8 }

// Few reports whether the limit is low enough for a warning.
func (s Shares) Few() bool { return s.Limit < enough }
