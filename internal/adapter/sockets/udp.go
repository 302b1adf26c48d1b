//go:build linux

package sockets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenUDP binds c.Listeners sockets to one address.
//
// The first socket is bound without SO_REUSEPORT, so that binding a port of another process is an
// error even if that process shares the port. Afterwards the first socket gets the option, so
// that the other sockets can share the port. No process can take the port between check and use,
// because binding is itself the check. For port 0 the kernel chooses a port only for the first
// socket.
func listenUDP(c Config) ([]*Listener, error) {
	var ls []*Listener
	address := c.Address
	for i := range c.Listeners {
		l, err := bindUDP(c, address, i > 0)
		if err != nil {
			for _, l := range ls {
				_ = l.Close()
			}
			return nil, udpError(c.Address, err)
		}
		ls = append(ls, l)
		address = l.addr.String()
	}
	return ls, nil
}

// bindUDP binds one socket. `join` means that it shares a port that is already bound.
func bindUDP(c Config, address string, join bool) (*Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error {
			if err := setReceiveBuffer(fd, c.ReceiveBuffer); err != nil || !join {
				return err
			}
			return sharePort(fd)
		})
	}}
	pc, err := lc.ListenPacket(context.Background(), "udp", address)
	if err != nil {
		return nil, err
	}
	return newUDP(pc.(*net.UDPConn), c, Inherited{}, func(l *Listener, fd int) error {
		if c.Listeners > 1 && !join {
			if err := sharePort(fd); err != nil {
				return err
			}
		}
		return l.readReceiveBuffer(fd, c.ReceiveBuffer)
	})
}

// newUDP makes a listener of `conn`. From then on newUDP or the listener owns `conn`, even after an
// error. `finish` sets the remaining options.
func newUDP(conn *net.UDPConn, c Config, in Inherited, finish func(l *Listener, fd int) error) (*Listener, error) {
	d, err := newDatagrams(conn, c)
	if err != nil {
		return nil, err
	}
	d.kernel.last = in.Drops
	l, err := newListener(d, d.socket, conn.LocalAddr(), d.counters)
	if err == nil {
		err = control(d.socket, func(fd int) error { return finish(l, fd) })
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	l.warnings = groWarning(l.addr.String(), d.groRefused)
	return l, nil
}

func sharePort(fd int) error {
	return os.NewSyscallError("setsockopt SO_REUSEPORT", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// udpError adds advice to common errors.
func udpError(address string, err error) error {
	_, port, _ := net.SplitHostPort(address)
	var hint string
	var malformed *net.AddrError
	var unknown *net.DNSError
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		hint = fmt.Sprintf("; `ss -ulpn 'sport = :%s'` shows which process has the port: stop that process, "+
			"or choose another port",
			port)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		hint = "; this machine does not have that address; `ip address` lists its addresses"
	case errors.Is(err, unix.EACCES):
		hint = "; ports below 1024 take CAP_NET_BIND_SERVICE: grant it, or choose another port"
	case errors.As(err, &malformed), errors.As(err, &unknown):
		hint = "; give HOST:PORT, as in 127.0.0.1:8125"
	}
	return fmt.Errorf("listen on udp %s: %w%s", address, cause(err), hint)
}
