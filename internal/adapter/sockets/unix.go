//go:build linux

package sockets

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxPath is the length of the longest socket path in bytes: the kernel's field has 108 bytes,
// including the final zero.
const maxPath = 107

func listenUnixgram(c Config) ([]*Listener, error) {
	if err := claim(c.Network, c.Address); err != nil {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: c.Address, Net: "unixgram"})
	if err != nil {
		return nil, pathError(c.Network, c.Address, err)
	}
	file, err := own(c.Address, c.Mode)
	if err != nil {
		_ = conn.Close()
		return nil, pathError(c.Network, c.Address, err)
	}
	l, err := newUnixgram(conn, c, file)
	if err != nil {
		file.remove()
		return nil, pathError(c.Network, c.Address, err)
	}
	return []*Listener{l}, nil
}

// newUnixgram makes a listener of `conn`. From then on newUnixgram or the listener owns `conn`, even
// after an error.
func newUnixgram(conn *net.UnixConn, c Config, file socketFile) (*Listener, error) {
	d, err := newDatagrams(conn, c)
	if err != nil {
		return nil, err
	}
	d.release = func() {
		file.remove()
		// After the shutdown, senders get EPIPE, so they do not lose data silently. The queued datagrams
		// stay readable. Shutdown fails only on a closed socket.
		_ = d.socket.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
	}
	l, err := newListener(d, d.socket, conn.LocalAddr(), d.counters)
	if err != nil {
		d.leave() // the caller owns the file
		return nil, errors.Join(err, d.close())
	}
	setting, _ := os.ReadFile(queueLengthFile) // if the file cannot be read, there is no warning
	l.queue = queueWarning(c.Address, string(setting))
	return l, nil
}

func listenUnix(c Config) ([]*Listener, error) {
	if err := claim(c.Network, c.Address); err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.Address, Net: "unix"})
	if err != nil {
		return nil, pathError(c.Network, c.Address, err)
	}
	ln.SetUnlinkOnClose(false) // closing would remove a successor's file as well
	file, err := own(c.Address, c.Mode)
	if err != nil {
		_ = ln.Close()
		return nil, pathError(c.Network, c.Address, err)
	}
	l, err := newUnix(ln, c, file)
	if err != nil {
		file.remove()
		_ = ln.Close()
		return nil, pathError(c.Network, c.Address, err)
	}
	return []*Listener{l}, nil
}

func newUnix(ln *net.UnixListener, c Config, file socketFile) (*Listener, error) {
	raw, err := ln.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := newStream(ln, c, file)
	return newListener(s, raw, ln.Addr(), s.counters)
}

// claim makes sure that no file is at `path`. It removes a socket file on which no process listens:
// the process that made the file is dead.
func claim(network, path string) error {
	refuse := func(why string) error { return fmt.Errorf("listen on %s %s: %s", network, path, why) }
	if path == "" || strings.HasPrefix(path, "@") {
		return refuse("not a file; give the path of a socket file")
	}
	if len(path) > maxPath {
		return refuse(fmt.Sprintf("the path has %d bytes and the kernel allows %d; choose a shorter one", len(path), maxPath))
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pathError(network, path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return refuse("a file that is not a socket is in the way; move it, or choose another path")
	}
	c, err := net.DialTimeout(network, path, time.Second)
	if err == nil {
		_ = c.Close()
	}
	switch {
	case errors.Is(err, unix.ECONNREFUSED): // no process listens
		if err := os.Remove(path); err != nil {
			return pathError(network, path, fmt.Errorf("remove the socket file of a dead process: %w", err))
		}
		return nil
	case errors.Is(err, fs.ErrPermission):
		return pathError(network, path, err)
	default: // a listener of the other type, or one with a full queue, gives an error too
		return refuse(fmt.Sprintf("the path is in use by another process; `ss -xap src %s` shows which: stop that process, "+
			"or choose another path", path))
	}
}

// pathError adds advice to common errors.
func pathError(network, path string, err error) error {
	hint := "choose another path"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = "create its directory, or choose another path"
	case errors.Is(err, fs.ErrPermission):
		hint = "make its directory writable for this user, or choose another path"
	}
	return fmt.Errorf("listen on %s %s: %w; %s", network, path, cause(err), hint)
}
