//go:build linux

package sockets

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waiter makes the goroutine that reads a socket wait, either until a datagram comes or a deadline
// passes, or for the deadline alone. The wait occupies no thread, and delays no garbage collection and
// no shutdown.
//
// The runtime's poller watches an epoll instance instead of the socket. The instance reports
// datagrams only while it is armed, and a timer at the deadline. The timer is the kernel's, because
// one of the runtime costs twice as much: it wakes the poller early, to the millisecond, and then a
// second thread that finds nothing to do.
type waiter struct {
	socket   *descriptor
	file     *os.File // the epoll instance
	raw      syscall.RawConn
	timer    int       // descriptor of a timerfd
	closing  sync.Once // the timer's number may belong to another file afterwards
	deadline time.Time
	armed    bool
	modify   func(epoll uintptr)      // the method tell as a value; this and `over` are made once to save allocations
	over     func(epoll uintptr) bool // the method `passed` as a value
	err      error                    // result of the last call of tell
}

func newWaiter(socket *descriptor) (*waiter, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("timerfd_create", err), unix.Close(fd))
	}
	err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, timer, &unix.EpollEvent{Events: unix.EPOLLIN})
	if err == nil {
		err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, socket.fd, &unix.EpollEvent{})
	}
	err = os.NewSyscallError("epoll_ctl", err)
	if err == nil {
		// os.NewFile registers only non-blocking files with the runtime's poller.
		err = os.NewSyscallError("fcntl O_NONBLOCK", unix.SetNonblock(fd, true))
	}
	w := &waiter{socket: socket, file: os.NewFile(uintptr(fd), "epoll"), timer: timer}
	w.modify, w.over = w.tell, w.passed
	if err == nil {
		err = w.file.SetReadDeadline(time.Time{}) // fails if the poller refused the file
	}
	if err == nil {
		w.raw, err = w.file.SyscallConn()
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// setDeadline sets the time at which `sleep` returns, and from which on await's `try` should return
// true. The time longAgo ends all waits for good, with os.ErrDeadlineExceeded. Any goroutine may set
// it; other times are for the reading goroutine only.
func (w *waiter) setDeadline(at time.Time) error {
	if at.Equal(longAgo) {
		return w.file.SetReadDeadline(at)
	}
	w.deadline = at
	w.socket.mu.RLock()
	defer w.socket.mu.RUnlock()
	if w.socket.fd < 0 { // the timer closes after the socket
		return net.ErrClosed
	}
	// A time of 0 would stop the timer. The kernel's clock is the one that `passed` reads, so the timer
	// never rings before the deadline.
	rings := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(time.Until(at)), 1))}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(w.timer), 0, uintptr(unsafe.Pointer(&rings)),
		0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("timerfd_settime", errno)
	}
	return nil
}

// passed reports whether the deadline has passed. It does not read the timer, which stays readable
// until the next deadline is set.
func (w *waiter) passed(uintptr) bool { return !time.Now().Before(w.deadline) }

// await calls `try` until `try` returns true: at once, after each datagram that arrives, and when
// the deadline passes.
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
	return w.raw.Read(w.over)
}

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

// close wakes the reader. No data can be lost, so errors mean nothing.
func (w *waiter) close() {
	w.closing.Do(func() {
		_ = w.file.Close()
		_ = unix.Close(w.timer)
	})
}
