//go:build linux

package sockets

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// setReceiveBuffer asks for a receive buffer of `size` bytes. SO_RCVBUFFORCE may exceed
// net.core.rmem_max, but needs CAP_NET_ADMIN. The kernel cuts SO_RCVBUF down to net.core.rmem_max
// without an error, so receiveBuffer reads the result back.
func setReceiveBuffer(fd, size int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) == nil {
		return nil
	}
	return os.NewSyscallError("setsockopt SO_RCVBUF", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size))
}

// receiveBuffer returns the size that the kernel granted, in the unit of the request. The kernel
// doubles a request for its own overhead, and reports the doubled size.
func receiveBuffer(fd int) (int, error) {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return n / 2, os.NewSyscallError("getsockopt SO_RCVBUF", err)
}

// receiveBufferWarning returns a warning if the kernel granted less than the wanted
// size.
func receiveBufferWarning(addr string, wanted, granted int) []string {
	if granted >= wanted {
		return nil
	}
	return []string{fmt.Sprintf("udp %s: the kernel granted %d of the %d bytes wanted as receive buffer, "+
		"so shorter bursts are lost; "+
		"run `sysctl -w net.core.rmem_max=%d` and restart, or give the process CAP_NET_ADMIN", addr, granted, wanted, wanted)}
}

const (
	queueLengthFile = "/proc/sys/net/unix/max_dgram_qlen"
	queueWanted     = 512 // datagrams, as the authors of DogStatsD clients advise
	queueSmall      = 100 // shorter queues get a warning; the kernel's default is 10
)

// queueWarning warns of a Unix datagram socket's short queue. The queue length is the only limit of
// these sockets, because SO_RCVBUF does not apply to them.
func queueWarning(path, setting string) []string {
	n, err := strconv.Atoi(strings.TrimSpace(setting))
	if err != nil || n >= queueSmall {
		return nil
	}
	return []string{fmt.Sprintf("unixgram %s: the kernel queues only %d datagrams, and further ones fail "+
		"on the sender's side; "+
		"run `sysctl -w net.unix.max_dgram_qlen=%d`, then stop and start Freshet: a restart in place keeps the "+
		"socket and its queue", path, n, queueWanted)}
}

// dropCounter turns the kernel's 32-bit count of a socket's drops into a total.
type dropCounter struct {
	mu    sync.Mutex
	last  uint32 // the kernel's last count
	total uint64
}

// read adds the drops that the kernel counted since the last call, and returns the total. It uses
// SO_MEMINFO, because SO_RXQ_OVFL comes only with received packets and so never reports drops
// after the last packet.
func (d *dropCounter) read(socket *descriptor) uint64 {
	var m memory
	d.mu.Lock()
	defer d.mu.Unlock()
	if socket.memory(&m) {
		d.add(m[unix.SK_MEMINFO_DROPS])
	}
	return d.total
}

// seen returns the kernel's count at the last read.
func (d *dropCounter) seen() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

func (d *dropCounter) add(kernel uint32) {
	d.total += uint64(kernel - d.last) // correct even if the kernel's count has wrapped around
	d.last = kernel
}
