//go:build linux

package sockets

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter lets the goroutine that reads a socket wait for a datagram, or for a time
// only. No thread waits with it, and nothing else waits for it: not a collection
// of garbage, not a shutdown.
//
// The runtime's poller knows an epoll instance in place of the socket: that passes
// the socket's wakings on while it is armed, and none while it is not. Its
// deadline ends both kinds of waiting.
type waiter struct {
	socket *descriptor
	file   *os.File // the epoll instance
	raw    syscall.RawConn
	armed  bool
	modify func(epoll uintptr) // tell as a value, made once: to make it allocates
	err    error               // of tell
}

func newWaiter(socket *descriptor) (*waiter, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	err = os.NewSyscallError("epoll_ctl", unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, socket.fd, &unix.EpollEvent{}))
	if err == nil {
		// It is what makes os.NewFile tell the runtime's poller.
		err = os.NewSyscallError("fcntl O_NONBLOCK", unix.SetNonblock(fd, true))
	}
	w := &waiter{socket: socket, file: os.NewFile(uintptr(fd), "epoll")}
	w.modify = w.tell
	if err == nil {
		err = w.file.SetReadDeadline(time.Time{}) // fails where the poller refused it
	}
	if err == nil {
		w.raw, err = w.file.SyscallConn()
	}
	if err != nil {
		_ = w.file.Close()
		return nil, err
	}
	return w, nil
}

// await calls try, at once and after each datagram that arrives, until it returns
// true or the deadline passes.
func (w *waiter) await(try func(uintptr) bool) error {
	if err := w.arm(true); err != nil {
		return err
	}
	return w.raw.Read(try)
}

// sleep returns when the deadline passes.
func (w *waiter) sleep() error {
	if err := w.arm(false); err != nil {
		return err
	}
	return w.raw.Read(never)
}

func never(uintptr) bool { return false }

func (w *waiter) arm(on bool) error {
	if on == w.armed {
		return nil
	}
	w.armed = on
	if err := w.raw.Control(w.modify); err != nil {
		return err
	}
	return w.err
}

// tell tells the kernel whether to pass on the socket's wakings.
func (w *waiter) tell(epoll uintptr) {
	var e unix.EpollEvent
	if w.armed {
		e.Events = unix.EPOLLIN
	}
	w.socket.mu.RLock()
	defer w.socket.mu.RUnlock()
	w.err = os.NewSyscallError("epoll_ctl", unix.EpollCtl(int(epoll), unix.EPOLL_CTL_MOD, w.socket.fd, &e))
}

func (w *waiter) close() { _ = w.file.Close() } // it holds nothing
