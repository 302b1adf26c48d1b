// Package peers builds and runs other servers of metrics by StatsD's protocol, so
// that the lab can measure them beside Freshet under the same load: from a package
// registry, in versions pinned here, each with a backend that discards and a flush
// every 10 seconds. What a peer received is what its own counters say.
//
// Each peer has a file here with all that is set for it, and a folder with what
// pins it: a Go module of its own, so that Freshet's depends on none of them, or a
// package.json. How often to send and what to make of the figures is the lab's.
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

// Flush is how often each peer hands what it has aggregated to its backend.
const Flush = 10 * time.Second

// receiveBuffer is what each peer asks for as the receive buffer of its socket, in
// bytes, if it lets us: as much as Freshet. The kernel grants no more than
// net.core.rmem_max, and net.core.rmem_default to those that do not ask.
const receiveBuffer = 4 << 20

// Peer is a server to compare with.
type Peer struct {
	Name     string
	Version  string // of the package, as its registry spells it
	Language string
	Tags     bool // it understands the tags of DogStatsD
	Unixgram bool // it listens on a Unix datagram socket as well as on UDP

	program string // what the build makes, below the peer's directory
	build   func(ctx context.Context, p *Peer, home string, out io.Writer) error
	plan    func(place) (plan, error)
}

// All returns every peer.
func All() []Peer {
	return []Peer{statsdExporter, gostatsd, telegraf, veneur, otelcol, statsd}
}

// home is where a peer is built below the cache directory.
func (p *Peer) home(dir string) string { return filepath.Join(dir, p.Name+"-"+p.Version) }

// Built reports whether this version was built below dir.
func (p *Peer) Built(dir string) bool {
	_, err := os.Stat(filepath.Join(p.home(dir), p.program))
	return err == nil
}

// Build downloads and compiles the peer below dir, with the clients of its
// registry, whose output goes to out. It takes a second where nothing changed, and
// up to a few minutes and 2 GiB of module and build caches the first time.
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

// Received is what a peer says that it received since its start: metrics, that is
// lines, or datagrams if it does not count lines.
type Received struct {
	Metrics, Datagrams uint64
}

// place is what a peer is given to run with.
type place struct {
	program  string // what was built
	dir      string // for files, its own
	udp      string // host:port to receive at
	unixgram string // path to receive at
	admin    string // host:port that is free in TCP, to ask the peer at
}

// plan is how a peer runs in its place.
type plan struct {
	command  []string
	received func(context.Context) (Received, error)
	beside   func(context.Context) // runs as long as the peer does; may be nil
}

// Start starts the peer that was built below dir, and returns once it listens. The
// process begins in the caller's thread, so it has the cores that the caller
// pinned that thread to.
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

// write makes one of the peer's own files.
func (at place) write(name, text string) (path string, err error) {
	path = filepath.Join(at.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// read returns what the peer wrote into one of its own files so far, nothing if it
// has not begun.
func (at place) read(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(at.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
