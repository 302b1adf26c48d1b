//go:build linux

package sockets

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// adopt makes listeners from sockets that are already open.
func adopt(c Config) ([]*Listener, error) {
	defer c.closeInherited()
	var ls []*Listener
	for _, in := range c.Inherited {
		l, err := adoptOne(c, in)
		if err != nil {
			for _, l := range ls {
				l.leave() // another process may still read the socket
				_ = l.Close()
			}
			return nil, fmt.Errorf("listen on %s %s: take over the open socket: %w", c.Network, c.Address, cause(err))
		}
		ls = append(ls, l)
	}
	if c.Network == "udp" && len(ls) != c.Listeners {
		ls[0].warnings = append(ls[0].warnings,
			fmt.Sprintf("udp %s: %d sockets are configured, but %d were taken over; "+
				"stop and start to have the configured number", ls[0].addr, c.Listeners, len(ls)))
	}
	return ls, nil
}

func (c Config) closeInherited() {
	for _, in := range c.Inherited {
		_ = in.File.Close() // the listeners have duplicates of the file
	}
}

func adoptOne(c Config, in Inherited) (l *Listener, err error) {
	switch c.Network {
	case "udp":
		l, err = adoptUDP(c, in)
	case "unixgram":
		l, err = adoptUnixgram(c, in)
	default:
		l, err = adoptUnix(c, in)
	}
	if err == nil && in.Shared {
		l.leave()
	}
	return l, err
}

var errOtherSocket = errors.New("the open socket belongs to another network")

func adoptUDP(c Config, in Inherited) (*Listener, error) {
	pc, err := net.FilePacketConn(in.File)
	if err != nil {
		return nil, err
	}
	conn, ok := pc.(*net.UDPConn)
	if !ok {
		return nil, errors.Join(errOtherSocket, pc.Close())
	}
	return newUDP(conn, c, in, func(l *Listener, fd int) error { return l.raiseReceiveBuffer(fd, c.ReceiveBuffer) })
}

// raiseReceiveBuffer enlarges the buffer to the wanted size, but never shrinks it: the process that
// opened the socket may have had permission for a larger buffer than this process has.
func (l *Listener) raiseReceiveBuffer(fd, wanted int) error {
	if granted, err := receiveBuffer(fd); err != nil || granted >= wanted {
		return errors.Join(err, l.readReceiveBuffer(fd, wanted))
	}
	if err := setReceiveBuffer(fd, wanted); err != nil {
		return err
	}
	return l.readReceiveBuffer(fd, wanted)
}

func adoptUnixgram(c Config, in Inherited) (*Listener, error) {
	pc, err := net.FilePacketConn(in.File)
	if err != nil {
		return nil, err
	}
	conn, ok := pc.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errOtherSocket, pc.Close())
	}
	return newUnixgram(conn, c, boundFile(c.Address))
}

func adoptUnix(c Config, in Inherited) (*Listener, error) {
	other, err := net.FileListener(in.File)
	if err != nil {
		return nil, err
	}
	ln, ok := other.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(errOtherSocket, other.Close())
	}
	ln.SetUnlinkOnClose(false)
	l, err := newUnix(ln, c, boundFile(c.Address))
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return l, nil
}

// Leave prepares for a successor. It returns the socket as a file that the caller owns and hands over.
// From then on, Run leaves three things to the successor when it ends: the data that the kernel holds
// (for a stream socket, this is the backlog), the address, and the file of a Unix socket. Run still
// reads the data of connected clients, and then ends their connections.
func (l *Listener) Leave() (*os.File, error) {
	fd, err := duplicate(l.raw)
	if err != nil {
		return nil, fmt.Errorf("hand over %s %s: %w", l.addr.Network(), l.addr, err)
	}
	l.leave()
	return os.NewFile(uintptr(fd), l.addr.String()), nil
}

// Booked returns the kernel's number of the socket, and the kernel's count of drops at the last
// call of Drops. A successor needs this count as Inherited.Drops. `ok` is false for Unix sockets,
// which drop nothing.
func (l *Listener) Booked() (cookie uint64, drops uint32, ok bool) {
	d, ok := l.socket.(*datagrams)
	if _, udp := l.addr.(*net.UDPAddr); !ok || !udp {
		return 0, 0, false
	}
	return l.cookie, d.kernel.seen(), true
}
