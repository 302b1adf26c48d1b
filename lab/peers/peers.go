// Package peers builds and runs other StatsD servers, so that the lab can measure them beside Freshet
// under the same load. They come from a package registry, in versions that are pinned here. Each peer
// flushes every 10 seconds, to a backend that discards the data. A peer's own counters say what it
// received.
//
// Each peer has a file here with all of its settings, and a folder that pins its version: a Go
// module of its own, so that Freshet's module depends on none of them, or a package.json. The lab
// decides how often to send, and reads the figures.
package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Flush is the interval at which each peer flushes to its backend.
const Flush = 10 * time.Second

// receiveBuffer is the receive buffer, in bytes, that a peer requests if it has a setting for that.
// Freshet requests as much. The kernel grants at most net.core.rmem_max. A peer that requests nothing
// gets net.core.rmem_default.
const receiveBuffer = 4 << 20

// Peer is a server with which Freshet is compared.
type Peer struct {
	Name     string
	Version  string // version of the package, as the registry spells it
	Language string
	Tags     bool // whether it understands DogStatsD's tags
	Unixgram bool // whether it also listens on a Unix datagram socket

	program string // the built program, below the peer's directory
	build   func(ctx context.Context, p *Peer, home string, out io.Writer) error
	plan    func(place) (plan, error)
}

// All returns every peer.
func All() []Peer {
	return []Peer{statsdExporter, gostatsd, telegraf, veneur, otelcol, statsd}
}

// home returns the peer's directory below the cache directory.
func (p *Peer) home(dir string) string { return filepath.Join(dir, p.Name+"-"+p.Version) }

// Built reports whether this version was built below `dir`.
func (p *Peer) Built(dir string) bool {
	_, err := os.Stat(filepath.Join(p.home(dir), p.program))
	return err == nil
}

// Build downloads and compiles the peer below `dir` with the client of the peer's registry. The client's
// output goes to out. If nothing has changed, this takes a second. The first build takes up to a few
// minutes, and 2 GiB of module and build caches.
func (p *Peer) Build(ctx context.Context, dir string, out io.Writer) error {
	home, err := filepath.Abs(p.home(dir))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	if err := p.build(ctx, p, home, out); err != nil {
		return fmt.Errorf("build %s %s: %w", p.Name, p.Version, err)
	}
	return nil
}

// Received has a peer's own counts since its start. A peer counts metrics, one for each line. If it does
// not count lines, it counts datagrams.
type Received struct {
	Metrics, Datagrams uint64
}

// place says where a peer runs: its program, its directory and its addresses.
type place struct {
	program  string // the built program
	dir      string // directory for its files
	udp      string // host:port at which it receives
	unixgram string // path at which it receives
	admin    string // free TCP host:port, for requests to the peer
}

// plan says how to run a peer in a place.
type plan struct {
	command  []string
	received func(context.Context) (Received, error)
	beside   func(context.Context) // a function that runs as long as the peer does; may be nil
}

// Start starts the peer that was built below `dir`, and returns once it listens. The process starts
// on the caller's thread, so it gets the cores to which the caller has pinned that thread.
func (p *Peer) Start(ctx context.Context, dir string) (*Running, error) {
	if !p.Built(dir) {
		return nil, fmt.Errorf("start %s: version %s is not built in %s", p.Name, p.Version, dir)
	}
	program, err := filepath.Abs(filepath.Join(p.home(dir), p.program))
	if err != nil {
		return nil, err
	}
	r, err := p.start(ctx, program)
	if err != nil {
		return nil, fmt.Errorf("start %s %s: %w", p.Name, p.Version, err)
	}
	return r, nil
}

func (p *Peer) start(ctx context.Context, program string) (r *Running, err error) {
	at := place{program: program}
	if at.dir, err = os.MkdirTemp("", "peer"); err != nil {
		return nil, err
	}
	defer func() {
		if r == nil {
			err = errors.Join(err, os.RemoveAll(at.dir))
		}
	}()
	if at.udp, err = freeUDP(); err != nil {
		return nil, err
	}
	if at.admin, err = freeTCP(); err != nil {
		return nil, err
	}
	if p.Unixgram {
		at.unixgram = filepath.Join(at.dir, "socket")
	}
	plan, err := p.plan(at)
	if err != nil {
		return nil, err
	}
	return run(ctx, at, plan)
}

// write creates one of the peer's own files.
func (at place) write(name, text string) (path string, err error) {
	path = filepath.Join(at.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// read returns the present content of one of the peer's files, or nothing if the file does not exist yet.
func (at place) read(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(at.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
