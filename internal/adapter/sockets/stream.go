//go:build linux

package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// stream reads the connections of a Unix stream socket, each on its own goroutine. All packets go
// to one handler.
type stream struct {
	ln             *net.UnixListener
	file           socketFile
	maxPacket      int
	maxConnections int
	counters       *counters

	readers sync.WaitGroup
	watched atomic.Bool
	left    atomic.Bool // whether a successor accepts the backlog

	mu      sync.Mutex // locked once for each chunk, never for each frame
	h       Handler
	alarm   *alarm
	timed   func(Timing)
	chunks  uint                       // number of chunks that were handed over
	conns   map[*net.UnixConn]struct{} // the open connections
	current sender.Sender              // the sender of the chunk being handed over
}

func newStream(ln *net.UnixListener, c Config, file socketFile) *stream {
	return &stream{
		ln: ln, file: file, maxPacket: c.MaxPacket, maxConnections: c.Connections,
		counters: new(counters), timed: c.Timed, conns: make(map[*net.UnixConn]struct{}),
	}
}

// run accepts connections. The deadline of accept also causes the ticks while no connection has
// data.
func (s *stream) run(ctx context.Context, h Handler) error {
	alarm, stop := newAlarm(ctx, s.ln.SetDeadline)
	defer stop()
	s.h, s.alarm = h, alarm
	s.tick(false)
	var err error
	for ctx.Err() == nil && err == nil {
		var c *net.UnixConn
		c, err = s.ln.AcceptUnix()
		switch {
		case err == nil:
			s.open(c)
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.tick(true)
			err = nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE),
			errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
			s.counters.readErrors.Add(1)
			pause(ctx)
			err = nil
		}
	}
	return errors.Join(err, s.drain())
}

// tick calls the handler without a packet. `passed` means that the alarm's deadline has
// passed.
func (s *stream) tick(passed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if passed {
		s.alarm.passed()
	}
	now := time.Now()
	s.alarm.arm(now, s.h.Tick(now.UnixNano()))
}

// open starts a reader for c, unless too many connections are open.
func (s *stream) open(c *net.UnixConn) {
	s.mu.Lock()
	full := len(s.conns) >= s.maxConnections
	if !full {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if full {
		s.counters.refused.Add(1)
		_ = c.Close()
		return
	}
	s.counters.connections.Add(1)
	s.readers.Go(func() { s.serve(c) })
}

// serve reads c until its end, an error or a frame that is too long.
func (s *stream) serve(c *net.UnixConn) {
	d, peer := newDeframer(s.maxPacket), peerOf(c)
	var err error
	for err == nil {
		var n int
		n, err = c.Read(d.room())
		if n > 0 {
			d.wrote(n)
			if handErr := s.hand(d, peer); handErr != nil {
				err = handErr
			}
		}
	}
	switch {
	case errors.Is(err, errLongFrame):
		s.counters.longFrames.Add(1)
	case d.pending():
		s.counters.cutFrames.Add(1)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, errLongFrame) {
		s.counters.readErrors.Add(1)
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close()
}

// hand gives the complete frames of one chunk to the handler. It reads the clock under the lock, so
// that the handler's calls are in the order of their times.
func (s *stream) hand(d *deframer, peer sender.Sender) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = peer
	now := time.Now()
	var packets, bytes uint64
	p, err := d.next()
	for ; p != nil; p, err = d.next() {
		s.h.Packet(p, now.UnixNano())
		packets++
		bytes += uint64(len(p))
	}
	s.counters.packets.Add(packets)
	s.counters.bytes.Add(bytes)
	s.alarm.arm(now, s.h.Tick(now.UnixNano()))
	if s.chunks++; s.timed != nil && s.chunks%TimedEvery == 1 {
		s.timed(Timing{Read: now, Handling: time.Since(now)})
	}
	return err
}

// drain shuts the sockets down and hands over all data that clients have written by then. After a
// shutdown, unlike after a close, the data in a socket is still readable, and writers get EPIPE.
// So each reader ends when it has read everything. After Leave the listening socket stays open
// and keeps its backlog.
func (s *stream) drain() (err error) {
	if !s.left.Load() {
		s.file.remove()
		raw, rawErr := s.ln.SyscallConn()
		if err = rawErr; err == nil {
			err = control(raw, s.acceptQueued)
		}
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.CloseRead() // fails only if the client has already closed it
	}
	s.mu.Unlock()
	s.readers.Wait()
	return err
}

// acceptQueued opens the connections that wait in the backlog. It does not call Accept, which would
// fail at once because its deadline has passed.
func (s *stream) acceptQueued(fd int) error {
	if err := unix.Shutdown(fd, unix.SHUT_RD); err != nil {
		return os.NewSyscallError("shutdown", err)
	}
	for {
		nfd, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINVAL) { // EINVAL means that the socket is shut down and empty
			return nil
		}
		if err != nil {
			return os.NewSyscallError("accept", err)
		}
		f := os.NewFile(uintptr(nfd), s.file.path)
		c, err := net.FileConn(f) // duplicates f's descriptor
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		s.open(c.(*net.UnixConn))
	}
}

func (s *stream) leave() { s.left.Store(true) }

func (s *stream) watch(on bool) error {
	s.watched.Store(on)
	return nil
}

func (s *stream) sender() sender.Sender {
	if !s.watched.Load() {
		return sender.Sender{}
	}
	return s.current
}

// drops returns 0, because a client that writes to a full stream waits.
func (s *stream) drops() uint64 { return 0 }

func (s *stream) close() error {
	if !s.left.Load() {
		s.file.remove()
	}
	if err := s.ln.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
