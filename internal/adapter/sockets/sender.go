//go:build linux

package sockets

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// senders asks the kernel for the sender of each datagram while the socket is watched. The reading
// goroutine owns every field except `wanted`.
type senders struct {
	credentials bool // find a Unix socket's senders by SCM_CREDENTIALS instead of by address
	wanted      atomic.Bool

	names   *[batchSize]unix.RawSockaddrInet6 // the kernel writes addresses here; nil until the first watch
	control *[batchSize][credentialSpace]byte
	asking  bool         // whether the messages point to the field names
	used    int          // messages that the last receive filled
	message *unix.Msghdr // message of the packet being handled
}

// credentialSpace is the length of one SCM_CREDENTIALS message in bytes: a header of 16,
// credentials of 12, and padding to a multiple of 8.
const credentialSpace = 32

// watch turns the search for senders on or off, and may be called from any goroutine. Credentials
// come only with datagrams that were sent while the socket asks for them.
func (s *senders) watch(raw controller, on bool) error {
	if s.credentials {
		value := 0
		if on {
			value = 1
		}
		err := control(raw, func(fd int) error {
			return os.NewSyscallError("setsockopt SO_PASSCRED", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, value))
		})
		if err != nil {
			return err
		}
	}
	s.wanted.Store(on)
	return nil
}

// prepare restores the length of the space for senders before the next batch, because the kernel has
// overwritten this length with the length of the address.
func (s *senders) prepare(msgs *[batchSize]unix.Mmsghdr) {
	n := s.used
	if wanted := s.wanted.Load(); wanted != s.asking {
		s.asking = wanted
		n = batchSize
	} else if !wanted {
		return
	}
	for i := range msgs[:n] {
		s.room(&msgs[i].Hdr, i)
	}
}

func (s *senders) room(m *unix.Msghdr, i int) {
	switch {
	case !s.asking && s.credentials:
		m.Control = nil
		m.SetControllen(0)
	case !s.asking:
		m.Name, m.Namelen = nil, 0
	case s.credentials:
		if s.control == nil {
			s.control = new([batchSize][credentialSpace]byte)
		}
		m.Control = &s.control[i][0]
		m.SetControllen(credentialSpace)
	default:
		if s.names == nil {
			s.names = new([batchSize]unix.RawSockaddrInet6)
		}
		m.Name = (*byte)(unsafe.Pointer(&s.names[i]))
		m.Namelen = unix.SizeofSockaddrInet6
	}
}

// sender decodes the sender of the packet being handled.
func (s *senders) sender() sender.Sender {
	switch {
	case !s.asking:
		return sender.Sender{}
	case s.credentials:
		return credentialsOf(s.message)
	default:
		return sender.Sender{Addr: addressOf(s.message)}
	}
}

func addressOf(m *unix.Msghdr) netip.AddrPort {
	in6 := (*unix.RawSockaddrInet6)(unsafe.Pointer(m.Name))
	port := func(p *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:]) }
	switch {
	case m.Namelen >= unix.SizeofSockaddrInet6 && in6.Family == unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(in6.Addr).Unmap(), port(&in6.Port))
	case m.Namelen >= unix.SizeofSockaddrInet4 && in6.Family == unix.AF_INET:
		in4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(m.Name))
		return netip.AddrPortFrom(netip.AddrFrom4(in4.Addr), port(&in4.Port))
	}
	return netip.AddrPort{}
}

func credentialsOf(m *unix.Msghdr) sender.Sender {
	if int(m.Controllen) < unix.CmsgLen(unix.SizeofUcred) {
		return sender.Sender{}
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(m.Control))
	if h.Level != unix.SOL_SOCKET || h.Type != unix.SCM_CREDENTIALS {
		return sender.Sender{}
	}
	c := (*unix.Ucred)(unsafe.Add(unsafe.Pointer(h), unix.CmsgLen(0)))
	return sender.Sender{PID: c.Pid, UID: int32(c.Uid)}
}

// peerOf returns the process that opened a connection. Fields that the kernel does not give
// stay zero.
func peerOf(c *net.UnixConn) (s sender.Sender) {
	raw, err := c.SyscallConn()
	if err != nil {
		return s
	}
	_ = control(raw, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			s.PID, s.UID = cred.Pid, int32(cred.Uid)
		}
		return err
	})
	return s
}
