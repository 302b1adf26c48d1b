//go:build linux

package sockets

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter makes the goroutine that reads a socket wait, either until a datagram comes or a deadline
// passes, or for the deadline alone. The wait occupies no thread, and delays no garbage collection and
// no shutdown.
//
// The runtime's poller watches an epoll instance instead of the socket. The instance reports
// datagrams only while it is armed. The deadline of the instance's file ends both kinds of waiting.
type waiter struct {
	socket *descriptor
	file   *os.File // the epoll instance
	raw    syscall.RawConn
	armed  bool
	modify func(epoll uintptr) // the method tell as a value; made once to save allocations
	err    error               // result of the last call of tell
}

func newWaiter(socket *descriptor) (*waiter, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	err = os.NewSyscallError("epoll_ctl", unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, socket.fd, &unix.EpollEvent{}))
	if err == nil {
		// os.NewFile registers only non-blocking files with the runtime's poller.
		err = os.NewSyscallError("fcntl O_NONBLOCK", unix.SetNonblock(fd, true))
	}
	w := &waiter{socket: socket, file: os.NewFile(uintptr(fd), "epoll")}
	w.modify = w.tell
	if err == nil {
		err = w.file.SetReadDeadline(time.Time{}) // fails if the poller refused the file
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

// await calls `try`, at once and after each datagram that arrives, until `try` returns true or the
// deadline passes.
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

// tell arms or disarms the epoll instance. The instance reports the socket's datagrams only while
// it is armed.
func (w *waiter) tell(epoll uintptr) {
	var e unix.EpollEvent
	if w.armed {
		e.Events = unix.EPOLLIN
	}
	w.socket.mu.RLock()
	defer w.socket.mu.RUnlock()
	w.err = os.NewSyscallError("epoll_ctl", unix.EpollCtl(int(epoll), unix.EPOLL_CTL_MOD, w.socket.fd, &e))
}

func (w *waiter) close() { _ = w.file.Close() } // no data can be lost
