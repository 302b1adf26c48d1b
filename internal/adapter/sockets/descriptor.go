//go:build linux

package sockets

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// descriptor is a datagram socket outside the runtime's poller. The poller would wake a thread for
// each datagram, even while no goroutine waits for it.
//
// The system calls of a descriptor bypass Go's scheduler, because notifying the scheduler costs more
// than the call itself. So a garbage collection may have to wait for a call, which reads one batch at
// most.
type descriptor struct {
	mu sync.RWMutex // close locks it for writing, system calls for reading
	fd int          // -1 after close
}

// conn has the methods of *net.UDPConn and *net.UnixConn that we need.
type conn interface {
	net.Conn
	syscall.Conn
}

// detach duplicates the socket of c, and closes c.
func detach(c conn) (*descriptor, error) {
	defer func() { _ = c.Close() }()
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, err := duplicate(raw)
	return &descriptor{fd: fd}, err
}

// duplicate returns another descriptor of a socket.
func duplicate(raw controller) (fd int, err error) {
	err = control(raw, func(original int) (err error) {
		fd, err = unix.FcntlInt(uintptr(original), unix.F_DUPFD_CLOEXEC, 0)
		return os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	})
	return fd, err
}

// Control implements syscall.RawConn's method.
func (d *descriptor) Control(f func(fd uintptr)) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.fd < 0 {
		return net.ErrClosed
	}
	f(uintptr(d.fd))
	return nil
}

// receive reads the waiting datagrams without blocking, as many as msgs has room for. It returns at
// least one message or an error.
func (d *descriptor) receive(msgs *[batchSize]unix.Mmsghdr) (n int, errno syscall.Errno) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(d.fd),
			uintptr(unsafe.Pointer(&msgs[0])), batchSize, unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno // the system call returned -1
		}
		return int(n), 0
	}
}

// memory has the kernel's figures about a socket's memory, indexed by SK_MEMINFO constants.
type memory [unix.SK_MEMINFO_VARS]uint32

func (d *descriptor) memory(m *memory) (ok bool) {
	size := uint32(unsafe.Sizeof(*m))
	d.mu.RLock()
	defer d.mu.RUnlock()
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(d.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(m)), uintptr(unsafe.Pointer(&size)), 0)
	return errno == 0
}

func (d *descriptor) closed() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.fd < 0
}

func (d *descriptor) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return nil
	}
	fd := d.fd
	d.fd = -1
	return os.NewSyscallError("close", unix.Close(fd))
}

// controller runs a function with a socket's descriptor, as syscall.RawConn does.
type controller interface {
	Control(f func(fd uintptr)) error
}

// control runs f with the socket's descriptor.
func control(raw controller, f func(fd int) error) error {
	var err error
	if controlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}

// cause removes the operation and address from an error of package net, because our own errors
// begin with them.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// batchSize is the maximum number of datagrams that one system call reads. With 64 datagrams,
// the cost of the call itself is negligible for each datagram (BenchmarkUDP).
const batchSize = 64
