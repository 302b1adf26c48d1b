//go:build linux

package loadgen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/load"
)

const (
	maxMessages = 64 // in one call of sendmmsg

	// The kernel's limits for a message that it cuts into packets: UDP_MAX_SEGMENTS, which newer
	// kernels have doubled, and the length of the longest datagram.
	maxSegments = 64
	maxGSO      = load.MaxPacket

	// maxBatch packets are about 700 kB of UDP, which fit any receive buffer that is worth measuring.
	maxBatch = 512
)

// batch is the argument of sendmmsg. It points into the load's memory.
type batch struct {
	messages [maxMessages]message
	pieces   [maxMessages]unix.Iovec
}

// message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	length uint32 // bytes that the kernel accepted
}

// segments returns how many packets of this size go into a message.
func (c *Client) segments(packetBytes int) int {
	if !c.config.GSO {
		return 1
	}
	return max(1, min(maxSegments, maxGSO/packetBytes))
}

// batchLimit returns how many packets of this size sendAll takes.
func (c *Client) batchLimit(packetBytes int) int {
	return min(maxMessages*c.segments(packetBytes), maxBatch)
}

// segment sets the size at which the kernel cuts messages into packets.
func (c *Client) segment(packetBytes int) error {
	if c.config.Network != "udp" {
		return errors.New("GSO works with udp only")
	}
	for _, fd := range c.sockets {
		if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, packetBytes); err != nil {
			return fmt.Errorf("%w; send without GSO", os.NewSyscallError("setsockopt UDP_SEGMENT", err))
		}
	}
	return nil
}

// sendAll sends packets from the next socket, and counts them. When ctx is done, it drops the
// packets that are left.
func (c *Client) sendAll(ctx context.Context, p load.Packets) error {
	fd := c.sockets[c.next]
	c.next = (c.next + 1) % len(c.sockets)
	segments := c.segments(p.Size)
	for n := c.batch.fill(p, segments); p.Len() > 0; {
		pending := (p.Len() + segments - 1) / segments
		sent, err := sendmmsg(fd, c.batch.messages[n-pending:n])
		if err == nil {
			var taken load.Packets
			taken, p = p.Cut(min(sent*segments, p.Len()))
			c.count(func(r *Result) { r.Sent.Add(taken) })
			continue
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECONNREFUSED):
			return fmt.Errorf("%w; is a server listening there?", err)
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS):
			return err
		case c.config.DropRefused && c.config.Network == "unixgram":
			var dropped load.Packets
			dropped, p = p.Cut(1)
			c.count(func(r *Result) { r.Refused++; r.Dropped.Add(dropped) })
		default:
			c.count(func(r *Result) { r.Refused++ })
			if ctx.Err() != nil {
				return nil
			}
			if err := awaitRoom(fd, err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Client) count(add func(*Result)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.progress)
}

// fill makes the messages point at packets, and returns the number of messages.
func (b *batch) fill(p load.Packets, segments int) (n int) {
	size := segments * p.Size
	for at := 0; at < len(p.Data); at += size {
		piece := p.Data[at:min(at+size, len(p.Data))]
		b.pieces[n].Base = &piece[0]
		b.pieces[n].SetLen(len(piece))
		b.messages[n].header.Iov = &b.pieces[n]
		b.messages[n].header.SetIovlen(1)
		n++
	}
	return n
}

func sendmmsg(fd int, messages []message) (sent int, err error) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages[0])),
		uintptr(len(messages)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, syscall.Errno(errno)
	}
	return int(n), nil
}

// awaitRoom waits until the socket accepts more. poll does not report that the kernel is out of
// memory, so in that case awaitRoom waits for a fixed short time.
func awaitRoom(fd int, refused error) error {
	if errors.Is(refused, unix.ENOBUFS) {
		nap(shortNap)
		return nil
	}
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	_, err := unix.Poll(fds[:], int(longNap/time.Millisecond))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	return nil
}
