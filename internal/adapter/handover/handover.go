//go:build linux

// Package handover passes open sockets from one program to the next: from systemd to us (socket
// activation), and from us to the next image of our own process. It knows which socket has
// which address; other packages read from the sockets.
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/lib/cookie"
)

// Socket is an open socket.
type Socket struct {
	File    *os.File
	Network string // udp, unixgram, unix (a listening stream socket) or tcp (a listening socket)
	Address string // the kernel's spelling: IP:PORT or path

	// Name comes from the program that passed the socket. systemd passes the unit's
	// FileDescriptorName=. An image of this process passes the address as the configuration spells
	// it, so two addresses with port 0 have the same name.
	Name string

	// Shared means that systemd holds the socket as well, and passes it on even if this process
	// crashes.
	Shared bool

	Cookie uint64 // see cookie.Of

	only6 bool // the socket is bound to an IPv6 address and does not serve IPv4
}

// Sockets are the passed sockets that have not been taken yet.
type Sockets struct {
	left   []Socket
	shared map[uint64]bool // cookies of the sockets that systemd holds, taken or not
	again  bool
}

// imageVariable lists the sockets that one image of this process passes to the next.
const imageVariable = "LISTEN_FRESHET"

// passed is an entry of imageVariable.
type passed struct {
	FD     int    `json:"fd"`
	Name   string `json:"name"`
	Shared bool   `json:"shared,omitempty"`
}

// firstFD is the descriptor of the first socket that systemd passes.
const firstFD = 3

// Inherit returns the sockets that were passed to this process. It removes their variables from the
// environment, so that child processes do not claim the sockets. Call it once, before anything else
// opens files.
func Inherit() (*Sockets, error) {
	_, again := os.LookupEnv(imageVariable)
	list, err := parse(os.Getpid(), os.LookupEnv)
	for _, name := range []string{"LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES", imageVariable} {
		_ = os.Unsetenv(name) // fails only for invalid names
	}
	if err != nil {
		return nil, err
	}
	s := &Sockets{shared: map[uint64]bool{}, again: again}
	for _, p := range list {
		unix.CloseOnExec(p.FD)
		socket, err := inspect(p)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("socket %q that was passed as file %d: %w", p.Name, p.FD, err), s.Close())
		}
		s.left = append(s.left, socket)
		s.shared[socket.Cookie] = socket.Shared
	}
	return s, nil
}

// parse reads the variables of the previous image, or else systemd's. It ignores variables that
// are meant for another process.
func parse(pid int, getenv func(string) (string, bool)) ([]passed, error) {
	if text, ok := getenv(imageVariable); ok {
		var list []passed
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", imageVariable, text, err)
		}
		return list, nil
	}
	text, _ := getenv("LISTEN_PID")
	if text != strconv.Itoa(pid) {
		return nil, nil
	}
	text, _ = getenv("LISTEN_FDS")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 1<<16 {
		return nil, fmt.Errorf("LISTEN_FDS=%s is not a number of sockets", text)
	}
	text, _ = getenv("LISTEN_FDNAMES")
	names := strings.Split(text, ":")
	list := make([]passed, n)
	for i := range list {
		list[i] = passed{FD: firstFD + i, Shared: true}
		if i < len(names) {
			list[i].Name = names[i]
		}
	}
	return list, nil
}

// inspect asks the kernel for the network and the address of the socket behind a descriptor.
func inspect(p passed) (s Socket, err error) {
	s = Socket{Name: p.Name, Shared: p.Shared}
	at, err := unix.Getsockname(p.FD)
	if err != nil {
		return s, os.NewSyscallError("getsockname", err)
	}
	kind, err := unix.GetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return s, os.NewSyscallError("getsockopt SO_TYPE", err)
	}
	listens, err := unix.GetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return s, os.NewSyscallError("getsockopt SO_ACCEPTCONN", err)
	}
	if s.Cookie, err = cookie.Of(p.FD); err != nil {
		return s, err
	}
	if _, ok := at.(*unix.SockaddrInet6); ok {
		only6, err := unix.GetsockoptInt(p.FD, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
		if err != nil {
			return s, os.NewSyscallError("getsockopt IPV6_V6ONLY", err)
		}
		s.only6 = only6 != 0
	}
	_, local := at.(*unix.SockaddrUnix)
	switch {
	case kind == unix.SOCK_DGRAM && local:
		s.Network = "unixgram"
	case kind == unix.SOCK_DGRAM:
		s.Network = "udp"
	case kind == unix.SOCK_STREAM && listens == 1 && local:
		s.Network = "unix"
	case kind == unix.SOCK_STREAM && listens == 1:
		s.Network = "tcp"
	default:
		return s,
			errors.New("neither a datagram socket nor a listening stream socket; in the unit use ListenDatagram=, " +
				"or ListenStream= with Accept=no")
	}
	s.Address, err = addressOf(at)
	s.File = os.NewFile(uintptr(p.FD), s.Network+" "+s.Address)
	return s, err
}

func addressOf(at unix.Sockaddr) (string, error) {
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)).String(), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr).Unmap(), uint16(at.Port)).String(), nil
	case *unix.SockaddrUnix:
		return at.Name, nil
	}
	return "", fmt.Errorf("the address family %T is not supported", at)
}

// Again reports whether an image of this process passed the sockets, rather than systemd.
func (s *Sockets) Again() bool { return s.again }

// Take returns the passed sockets, if any, that are bound to an address of the configuration.
// The caller then owns them.
func (s *Sockets) Take(network, address string) (taken []Socket) {
	s.left = slices.DeleteFunc(s.left, func(l Socket) bool {
		if !l.is(network, address) {
			return false
		}
		taken = append(taken, l)
		return true
	})
	return taken
}

// TakeOne is like Take, but takes at most one socket, for a caller that reads only one. The remaining
// sockets of that address stay, in the order in which they were passed, for other callers whose address
// has the same spelling (port 0).
func (s *Sockets) TakeOne(network, address string) (one Socket, ok bool) {
	i := slices.IndexFunc(s.left, func(l Socket) bool { return l.is(network, address) })
	if i < 0 {
		return Socket{}, false
	}
	one = s.left[i]
	s.left = slices.Delete(s.left, i, i+1)
	return one, true
}

// is(network, address) reports whether the socket serves the address.
func (s *Socket) is(network, address string) bool {
	switch {
	case s.Network != network:
		return false
	case !s.Shared && s.Name == address:
		return true
	case network == "unix" || network == "unixgram":
		return sameFile(s.Address, address)
	}
	return sameAddress(s.Address, address, s.only6)
}

func sameFile(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	if errA == nil && errB == nil && absA == absB {
		return true
	}
	infoA, errA := os.Lstat(a)
	infoB, errB := os.Lstat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// sameAddress reports whether a socket bound to one address serves another. A socket bound to
// all of IPv6 serves all of IPv4, too, unless it is for IPv6 only.
func sameAddress(bound, wanted string, only6 bool) bool {
	has, err := netip.ParseAddrPort(bound)
	if err != nil {
		return false
	}
	at, err := net.ResolveUDPAddr("udp", wanted) // TCP addresses have the same form
	if err != nil || at.Port != int(has.Port()) {
		return false
	}
	ip := at.AddrPort().Addr().Unmap()
	if !ip.IsValid() || ip.IsUnspecified() { // ":8125"
		return has.Addr() == netip.IPv6Unspecified() && (!only6 || ip.Is6()) || ip.Is4() && has.Addr() == ip
	}
	return ip.WithZone("") == has.Addr()
}

// Shared reports whether a file is a socket that systemd holds as well.
func (s *Sockets) Shared(file *os.File) (bool, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return false, err
	}
	var n uint64
	if controlErr := raw.Control(func(fd uintptr) { n, err = cookie.Of(int(fd)) }); controlErr != nil {
		return false, controlErr
	}
	return s.shared[n], err
}

// Left returns the sockets that were not taken.
func (s *Sockets) Left() []Socket { return s.left }

// Close closes the sockets that were not taken.
func (s *Sockets) Close() error {
	var errs []error
	for _, l := range s.left {
		errs = append(errs, l.File.Close())
	}
	s.left = nil
	return errors.Join(errs...)
}

// Exec replaces this program by the program at `path`, in the same process, and passes the sockets on.
// It returns only if it fails, and then this program continues.
func Exec(path string, args []string, sockets []Socket) error {
	var list []passed
	for _, s := range sockets {
		fd := int(s.File.Fd())
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil { // the descriptor stays open over exec
			return fmt.Errorf("hand over %s %s: %w", s.Network, s.Address, os.NewSyscallError("fcntl F_SETFD", err))
		}
		list = append(list, passed{fd, s.Name, s.Shared})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	err = syscall.Exec(path, args, append(os.Environ(), imageVariable+"="+string(text)))
	return fmt.Errorf("replace this process by %s: %w", path, err)
}
