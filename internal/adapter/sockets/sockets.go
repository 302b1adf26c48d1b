//go:build linux

// Package sockets has the DogStatsD sockets: UDP, Unix datagram ("unixgram") and Unix stream
// ("unix"). It binds them, reads them in batches into memory that each listener owns, and counts
// the kernel's drops. core/dogstatsd knows what the bytes mean, and the consumer decides what to do
// with them.
//
// Reading a datagram costs little, but waking up for it costs much. While many datagrams come, a
// reader of UDP lets them gather for some milliseconds (nap.go). Meanwhile the kernel does not
// report them to the runtime's poller (waiter.go).
//
// The package runs on Linux only. It needs recvmmsg, SO_MEMINFO, epoll and timerfd, and it reads the
// rest of a socket's data after it has shut the socket down, which Linux allows.
//
// The files, from the top; each uses only names of files below it:
//
//	sockets.go     Listen
//	inherited.go   sockets that were open before this image of the process began
//	udp.go         binding UDP
//	unix.go        binding Unix sockets
//	stream.go      reading connections
//	deframer.go    frames in a stream
//	datagram.go    reading datagrams, batch by batch
//	nap.go         how long a reader lets datagrams gather
//	sender.go      who sent a packet
//	gro.go         several datagrams in one buffer
//	waiter.go      waiting for datagrams without the runtime's poller
//	alarm.go       waking a reader at a time
//	listener.go    Listener: one bound socket
//	options.go     receive buffers and queues, and what the kernel granted
//	socketfile.go  the file of a Unix socket
//	config.go      what one address is read with
//	descriptor.go  the socket's descriptor
package sockets

import (
	"errors"
	"fmt"
)

// Listen binds the sockets that c describes: as many as Config.Listeners for UDP, otherwise one. It
// starts nothing, but from now on the kernel queues packets. Each Listener must be run or closed.
func Listen(c Config) ([]*Listener, error) {
	c, err := c.withDefaults()
	if err != nil {
		c.closeInherited()
		return nil, fmt.Errorf("listen on %s %s: %w", c.Network, c.Address, err)
	}
	if len(c.Inherited) > 0 {
		return adopt(c)
	}
	switch c.Network {
	case "udp":
		return listenUDP(c)
	case "unixgram":
		return listenUnixgram(c)
	default:
		return listenUnix(c)
	}
}

func (c Config) withDefaults() (Config, error) {
	if c.Listeners < 0 || c.MaxPacket < 0 || c.ReceiveBuffer < 0 || c.Connections < 0 {
		return c, errors.New("a setting is negative; write 0 for the default")
	}
	if c.Network != "udp" && c.Network != "unixgram" && c.Network != "unix" {
		return c, fmt.Errorf("unknown network %q; use udp, unixgram or unix", c.Network)
	}
	if c.Listeners > 1 && c.Network != "udp" {
		return c, fmt.Errorf("%d listeners: only a udp address can have more than 1; use 1", c.Listeners)
	}
	c.Listeners = max(c.Listeners, 1)
	if c.MaxPacket == 0 {
		c.MaxPacket = DefaultMaxPacket
	}
	if c.ReceiveBuffer == 0 {
		c.ReceiveBuffer = DefaultReceiveBuffer
	}
	if c.Mode == 0 {
		c.Mode = DefaultMode
	}
	if c.Connections == 0 {
		c.Connections = DefaultConnections
	}
	return c, nil
}
