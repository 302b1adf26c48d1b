//go:build linux

package sockets

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// groSlot is the size of the largest buffer in which the kernel hands over several datagrams.
const groSlot = 64 << 10

// segmentSpace is room for all control messages of a received message. The datagrams' size takes 24
// bytes. An inherited socket may also be set to give timestamps, addresses or counts of drops,
// which take 24 to 64 bytes each.
const segmentSpace = 256

// coalesced has the space where the kernel writes the size of each message's datagrams. With UDP_GRO the
// kernel may hand over several datagrams of one sender in one buffer. All have the same size, except the
// last, which may be shorter.
type coalesced struct {
	control [batchSize][segmentSpace]byte
}

// coalesce turns UDP_GRO on if wanted, and returns nil if it is off. A socket that was opened with
// UDP_GRO keeps the option, because several datagrams may already wait in one buffer.
func coalesce(fd int, wanted bool) (*coalesced, error) {
	var err error
	if wanted {
		err = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1)
	}
	if on, _ := unix.GetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO); on == 0 {
		return nil, err
	}
	return new(coalesced), nil
}

func groWarning(address string, refused error) []string {
	if refused == nil {
		return nil
	}
	return []string{fmt.Sprintf("udp %s: the kernel refuses UDP_GRO (%v), so datagrams are read one by one; "+
		"turn gro off, or run Linux 5.0 or later", address, refused)}
}

// prepare restores the length of the space for control messages before the next batch, because the
// kernel has overwritten it with the length that it used.
func (c *coalesced) prepare(msgs *[batchSize]unix.Mmsghdr) {
	if c == nil {
		return
	}
	for i := range msgs {
		msgs[i].Hdr.Control = &c.control[i][0]
		msgs[i].Hdr.SetControllen(segmentSpace)
	}
}

// segment returns the size of the datagrams in m, in bytes. `ok` is false if the size is lost, because m
// had room for only a part of its control messages.
func (c *coalesced) segment(m *unix.Mmsghdr) (size int, ok bool) {
	if c == nil {
		return int(m.Len), true
	}
	for rest := unsafe.Slice(m.Hdr.Control, int(m.Hdr.Controllen)); len(rest) >= unix.SizeofCmsghdr; {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&rest[0]))
		n := int(h.Len)
		if n < unix.CmsgLen(0) || n > len(rest) {
			break
		}
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && n >= unix.CmsgLen(4) {
			if size := *(*int32)(unsafe.Pointer(&rest[unix.CmsgLen(0)])); size > 0 {
				return int(size), true
			}
		}
		rest = rest[min(unix.CmsgSpace(n-unix.CmsgLen(0)), len(rest)):]
	}
	return int(m.Len), m.Hdr.Flags&unix.MSG_CTRUNC == 0
}
