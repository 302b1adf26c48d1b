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

// maxPath is the longest path of a socket in bytes: the kernel's field has 108,
// one of them for the final zero.
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

// newUnixgram takes conn over, also when it returns an error.
func newUnixgram(conn *net.UnixConn, c Config, file socketFile) (*Listener, error) {
	d, err := newDatagrams(conn, c)
	if err != nil {
		return nil, err
	}
	d.release = func() {
		file.remove()
		// From here on senders get EPIPE in place of a silent loss, and what is
		// queued stays readable. It fails only on a closed socket.
		_ = d.socket.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
	}
	l, err := newListener(d, d.socket, conn.LocalAddr(), d.counters)
	if err != nil {
		d.leave() // the file is the caller's
		return nil, errors.Join(err, d.close())
	}
	setting, _ := os.ReadFile(queueLengthFile) // without it there is nothing to compare
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
	ln.SetUnlinkOnClose(false) // it would remove a successor's file as well
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

// claim makes sure that nothing is in the way at path. The file of a process
// that died is removed: it is one if nobody listens behind it.
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
	case errors.Is(err, unix.ECONNREFUSED): // nobody listens
		if err := os.Remove(path); err != nil {
			return pathError(network, path, fmt.Errorf("remove what a dead process left: %w", err))
		}
		return nil
	case errors.Is(err, fs.ErrPermission):
		return pathError(network, path, err)
	default: // a listener of the other type and one with a full queue answer with errors too
		return refuse(fmt.Sprintf("the path is in use by another process; `ss -xap src %s` shows which: stop that, or choose another path", path))
	}
}

// pathError adds the way out to what commonly goes wrong.
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
