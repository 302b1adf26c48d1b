package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// target is a DogStatsD socket to send to.
type target struct {
	net.Conn
	name  string
	frame []byte // of a stream, used again; nil for datagrams
}

// dialTarget connects to udp://HOST:PORT, unixgram:PATH or unix:PATH. A path may
// follow two slashes.
func dialTarget(ctx context.Context, name string) (*target, error) {
	network, address, _ := strings.Cut(name, ":")
	address = strings.TrimPrefix(address, "//")
	if address == "" || network != "udp" && network != "unixgram" && network != "unix" {
		return nil, fmt.Errorf("--to = %s: is no address; write udp://HOST:PORT, unixgram:PATH or unix:PATH", name)
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("--to = %s: %w; is a server listening there?", name, err)
	}
	t := &target{Conn: conn, name: name}
	if network == "unix" {
		t.frame = make([]byte, 4)
	}
	return t, nil
}

// send sends one datagram or frame. By a Unix socket it waits while the receiver is
// busy.
func (t *target) send(data []byte) error {
	if t.frame != nil {
		t.frame = append(binary.LittleEndian.AppendUint32(t.frame[:0], uint32(len(data))), data...)
		data = t.frame
	}
	if _, err := t.Write(data); err != nil {
		return fmt.Errorf("send to %s: %w", t.name, err)
	}
	return nil
}

// broken reports whether no other datagram can be sent after err. By UDP each one
// stands for itself, and so does one that is too long.
func (t *target) broken(err error) bool {
	return t.RemoteAddr().Network() != "udp" && !errors.Is(err, syscall.EMSGSIZE) && !errors.Is(err, syscall.ENOBUFS)
}

// interrupt ends a send that waits.
func (t *target) interrupt() { _ = t.SetWriteDeadline(time.Now()) }
