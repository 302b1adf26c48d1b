//go:build linux

package sockets

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// BenchmarkUDP measures the reader alone: it queues packets first, and the timer runs while
// they are read and handed over. Look at ns/packet; ns/op includes the sender.
//
// Bound: 0 allocs/op. With 64 packets queued, a packet takes at most 500 ns and at most three quarters
// of the time of net.UDPConn.Read, so that 500k packets/s cost a quarter of a core. With one packet
// queued, the bound is two and a half times net.UDPConn.Read, because net.UDPConn.Read copies no list of
// messages and does not ask how full the buffer is. BenchmarkRate measures the cost of waiting.
func BenchmarkUDP(b *testing.B) {
	for _, size := range []int{64, 1432} {
		for _, queued := range []int{1, batchSize} {
			b.Run(fmt.Sprintf("listener/bytes=%d/queued=%d", size, queued), func(b *testing.B) {
				l := listen(b, Config{Network: "udp", Address: "127.0.0.1:0"})
				d := l.socket.(*datagrams)
				benchmarkRead(b, dial(b, l), size, queued, func() int {
					if err := d.wait.await(d.try); err != nil {
						b.Fatal(err)
					}
					d.hand(discard{}, time.Now().UnixNano())
					return d.n
				})
			})
			b.Run(fmt.Sprintf("UDPConn.Read/bytes=%d/queued=%d", size, queued), func(b *testing.B) {
				conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				p := make([]byte, DefaultMaxPacket)
				benchmarkRead(b, dialAddress(b, conn.LocalAddr()), size, queued, func() int {
					n, err := conn.Read(p)
					if err != nil {
						b.Fatal(err)
					}
					discard{}.Packet(p[:n], time.Now().UnixNano())
					return 1
				})
			})
		}
	}
}

// BenchmarkSender measures the cost of watching senders. It reads as BenchmarkUDP does, with and
// without watching, and calls Sender for each packet.
//
// Bound: 0 allocs/op. Watching adds at most 100 ns a packet for udp, and 150 ns for unixgram, where the
// kernel counts references to PIDs.
func BenchmarkSender(b *testing.B) {
	for _, network := range []string{"udp", "unixgram"} {
		for _, watched := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/watched=%t", network, watched), func(b *testing.B) {
				l := listen(b, Config{Network: network, Address: testAddress(b, network)})
				if err := l.Watch(watched); err != nil {
					b.Fatal(err)
				}
				d := l.socket.(*datagrams)
				var h Handler = asking{l}
				benchmarkRead(b, dial(b, l), 64, 8, func() int { // 8 packets, because unixgram's default queue holds 10
					if err := d.wait.await(d.try); err != nil {
						b.Fatal(err)
					}
					d.hand(h, time.Now().UnixNano())
					return d.n
				})
			})
		}
	}
}

// asking is a Handler that asks for each packet's sender.
type asking struct{ *Listener }

var lastSender sender.Sender

func (a asking) Packet([]byte, int64) { lastSender = a.Sender() }

func (a asking) Tick(now int64) int64 { return now + int64(time.Hour) }

// benchmarkRead queues packets and calls `read`, which takes packets and returns their number.
func benchmarkRead(b *testing.B, c net.Conn, size, queued int, read func() int) {
	payload := bytes.Repeat([]byte("x"), size)
	b.ReportAllocs()
	var reading time.Duration
	packets := 0
	for b.Loop() {
		for range queued {
			write(b, c, payload)
		}
		start := time.Now()
		for left := queued; left > 0; {
			left -= read()
		}
		reading += time.Since(start)
		packets += queued
	}
	b.ReportMetric(float64(reading.Nanoseconds())/float64(packets), "ns/packet")
	b.ReportMetric(float64(packets)/reading.Seconds(), "packets/s")
}
