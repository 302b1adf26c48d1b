package loadgen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// DefaultTarget is where DogStatsD clients send by default.
const DefaultTarget = "udp://127.0.0.1:8125"

// Target is a DogStatsD socket that takes single datagrams or frames.
type Target struct {
	net.Conn
	name  string
	frame []byte // buffer for the frames of a stream, reused; nil for datagrams
}

// ParseTarget reads udp://HOST:PORT, unixgram:PATH or unix:PATH. PATH may begin with two extra
// slashes.
func ParseTarget(name string) (network, address string, err error) {
	network, address, _ = strings.Cut(name, ":")
	address = strings.TrimPrefix(address, "//")
	if address == "" || network != "udp" && network != "unixgram" && network != "unix" {
		return "", "", fmt.Errorf("--to = %s: is not an address; write udp://HOST:PORT, unixgram:PATH or unix:PATH", name)
	}
	if network == "udp" {
		_, port, err := net.SplitHostPort(address)
		if n, noPort := strconv.ParseUint(port, 10, 16); err != nil || noPort != nil || n == 0 {
			return "", "",
				fmt.Errorf("--to = %s: has no port from 1 to 65535; write udp://HOST:PORT, such as %s", name, DefaultTarget)
		}
	}
	return network, address, nil
}

// DialTarget connects to an address that ParseTarget reads.
func DialTarget(ctx context.Context, name string) (*Target, error) {
	network, address, err := ParseTarget(name)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("--to = %s: %w; is a server listening there?", name, err)
	}
	t := &Target{Conn: conn, name: name}
	if network == "unix" {
		t.frame = make([]byte, 4)
	}
	return t, nil
}

// Send sends one datagram or frame. Over a Unix socket it waits while the receiver is busy.
func (t *Target) Send(data []byte) error {
	if t.frame != nil {
		t.frame = append(binary.LittleEndian.AppendUint32(t.frame[:0], uint32(len(data))), data...)
		data = t.frame
	}
	if _, err := t.Write(data); err != nil {
		return fmt.Errorf("send to %s: %w", t.name, err)
	}
	return nil
}

// Broken reports whether err makes it impossible to send further datagrams. Over UDP, or if only the
// last datagram was too long, the next datagram may still succeed.
func (t *Target) Broken(err error) bool {
	return t.RemoteAddr().Network() != "udp" && !errors.Is(err, syscall.EMSGSIZE) && !errors.Is(err, syscall.ENOBUFS)
}

// Refused reports whether err means that no server listens on the UDP port. The kernel learns this
// only after it has sent a datagram. It returns the error when the program sends the next
// datagram, and drops that datagram.
func (t *Target) Refused(err error) bool {
	return t.RemoteAddr().Network() == "udp" && errors.Is(err, syscall.ECONNREFUSED)
}

// Pending returns the error, if any, that the kernel has for the last datagram.
func (t *Target) Pending() error {
	conn, ok := t.Conn.(*net.UDPConn)
	if !ok {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	code := 0
	if controlled := raw.Control(func(fd uintptr) {
		code, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
	}); controlled != nil {
		return controlled
	}
	if err == nil && code != 0 {
		err = fmt.Errorf("send to %s: %w", t.name, syscall.Errno(code))
	}
	return err
}

// Interrupt ends a waiting Send.
func (t *Target) Interrupt() { _ = t.SetWriteDeadline(time.Now()) }
