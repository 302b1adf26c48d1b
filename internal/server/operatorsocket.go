package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/settings"
)

// runDirectory holds the socket if the data directory cannot: its path may be too long for a socket, or
// its file system may not support sockets. It is a variable only for tests.
var runDirectory = "/run/freshet"

// maxSocketPath is the longest path of a socket in bytes: the kernel's field has 108 bytes, the last of
// which is zero.
const maxSocketPath = 107

// openOperatorSocket binds the socket, unless it is already open, and begins to answer there. A server
// also runs without this socket: operators can use a token, or loopback.
func (s *server) openOperatorSocket() error {
	paths := s.operatorSocketPaths()
	listener, path, err := s.bindOperatorSocket(paths)
	if err != nil {
		s.logger.Warn("there is no socket for operators; ask on loopback or with an operator's token", "error", err)
		return nil
	}
	if path != paths[0] {
		s.logger.Warn("the socket for operators is outside the data directory: the path there is too long, "+
			"or its file system supports no sockets", "path", path)
	}
	h := newHTTPServer(listener, settings.HTTPListener{Listen: path, Tenant: s.config.HTTP.Tenant}, "http", s, s.logger)
	h.server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, operatorSocketKey{}, true)
	}
	go func() { h.served <- h.server.Serve(listener) }()
	s.operatorSocket = h
	return nil
}

// operatorSocketPaths returns the possible paths of the socket, beginning with the data directory.
// In runDirectory, the name of the socket depends on the path of the data directory, so that two
// servers never share a socket.
func (s *server) operatorSocketPaths() []string {
	dir := absolute(s.config.DataDir)
	return []string{s.path(answer.OperatorSocket),
		filepath.Join(runDirectory, fmt.Sprintf("operator-%.8x.sock", sha256.Sum256([]byte(dir))))}
}

// bindOperatorSocket uses the first path at which the previous image left a socket open, or at which a
// socket can be bound.
func (s *server) bindOperatorSocket(paths []string) (net.Listener, string, error) {
	var errs []error
	for _, path := range paths {
		listener, err := s.inherited.listener("unix", path)
		if listener != nil && s.unreachable(path) {
			s.logger.Warn("the socket for operators is bound again: its file was removed", "path", path)
			_ = listener.Close() // no client can connect to a removed file
			listener = nil
		}
		if err == nil && listener == nil {
			listener, err = listenPrivately(path)
		}
		if err == nil {
			return listener, path, nil
		}
		errs = append(errs, err)
	}
	return nil, "", errors.Join(errs...)
}

// unreachable reports whether the socket's file is gone although the previous image left the socket
// open, as after a clean-up of the directory. If systemd holds the socket, only a restart of its
// unit helps.
func (s *server) unreachable(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist) && !s.inherited.shared["unix "+path]
}

// listenPrivately binds a Unix socket that only this user may open, from the first moment on. A
// socket that is already there belongs to a dead process, since the lock of the data directory
// allows only one process.
func listenPrivately(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes and the kernel allows %d; choose a shorter data_dir",
			path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen on %s: a file that is not a socket is in the way; move it", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the socket of a dead process: %w", err)
		}
	}
	// The kernel gives the file the mode of the socket, minus the umask.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) { err = os.NewSyscallError("fchmod", syscall.Fchmod(int(fd), 0o600)) })
		return cmp.Or(controlErr, err)
	}}
	listener, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // the file outlives a restart in place
	return listener, nil
}

// operatorPath returns the path of the socket, or "" if there is no socket.
func (s *server) operatorPath() string {
	if s.operatorSocket == nil {
		return ""
	}
	return absolute(s.operatorSocket.address)
}

// runOperatorSocket answers requests on the socket until ctx is done.
func (s *server) runOperatorSocket(ctx context.Context) error {
	return s.operatorSocket.run(ctx, s.config.Drain)
}

// closeOperatorSocket closes the connections that runOperatorSocket has left open, and removes the
// file unless systemd holds the socket.
func (s *server) closeOperatorSocket() error {
	if s.operatorSocket == nil {
		return nil
	}
	err := s.operatorSocket.server.Close()
	if !s.inherited.shared["unix "+s.operatorSocket.address] {
		err = errors.Join(err, os.Remove(s.operatorSocket.address))
	}
	return err
}
