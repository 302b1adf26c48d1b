package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// connections is the number of connections to each server. Usually far fewer of them wait for an answer. If
// the server hangs, requests wait for a free connection, which shows in their latency.
const connections = 64

// client has the connections to a server. It is a minimal HTTP client: the client of net/http would take a
// third of the processors away from the server.
type client struct {
	address string
	idle    chan *connection
}

type connection struct {
	net.Conn
	r       *bufio.Reader
	request []byte
}

func newClient(address string) *client {
	c := &client{address: address, idle: make(chan *connection, connections)}
	for range connections {
		c.idle <- nil // its first user connects it
	}
	return c
}

func (c *client) close() {
	for range connections {
		if conn := <-c.idle; conn != nil {
			conn.Close()
		}
	}
}

// do sends one request on a connection and reads the answer, within a time limit.
func (c *client) do(conn **connection, within time.Duration) error {
	if *conn == nil {
		made, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		*conn = &connection{Conn: made, r: bufio.NewReader(made)}
	}
	at := *conn
	err := at.SetDeadline(time.Now().Add(within))
	at.request = fmt.Appendf(at.request[:0], "GET /coverage?origin=%d&destination=%d HTTP/1.1\r\nHost: localhost\r\n\r\n",
		rand.IntN(places), rand.IntN(places))
	if err == nil {
		_, err = at.Write(at.request)
	}
	if err == nil {
		err = at.answer()
	}
	if err != nil {
		at.Close()
		*conn = nil
	}
	return err
}

func (c *connection) answer() error {
	length := -1
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
		if len(line) == 2 {
			break
		}
	}
	if length < 2 {
		return fmt.Errorf("the answer has only %d bytes", length)
	}
	_, err := c.r.Discard(length)
	return err
}

// closedLoop keeps half of the connections busy, and returns the answers per second.
func (c *client) closedLoop(length time.Duration) (float64, error) {
	var answered atomic.Int64
	var clients sync.WaitGroup
	var failed atomic.Value
	begun := time.Now()
	for range connections / 2 {
		clients.Go(func() {
			conn := <-c.idle
			defer func() { c.idle <- conn }()
			for time.Since(begun) < length {
				if err := c.do(&conn, time.Until(begun.Add(length))); errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, io.EOF) {
					failed.Store(err)
					return
				} else if err == nil {
					answered.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if err := failed.Load(); err != nil {
		return 0, fmt.Errorf("closed loop: %w", err.(error))
	}
	return float64(answered.Load()) / length.Seconds(), nil
}

// slice is the result of an open loop.
type slice struct {
	p50, p99   time.Duration
	behind     time.Duration // 99th percentile of how late the client sent requests
	sent       int
	unanswered int // requests still without an answer `patience` after the end of the slice
}

// patience is how long the client waits for answers after the end of a slice.
const patience = time.Second

// openLoop sends requests at a rate, and measures the latency of each request from the time when it was
// due. For a request without an answer, the latency is the time until the end.
func (c *client) openLoop(rate float64, length time.Duration) slice {
	n := int(rate * length.Seconds())
	latencies := make([]time.Duration, n)
	behind := make([]time.Duration, n)
	var unanswered atomic.Int64
	begun := time.Now()
	last := begun.Add(length + patience)
	type request struct {
		i   int
		due time.Time
	}
	queue := make(chan request, n) // room for all requests, so that sending to it never blocks
	var clients sync.WaitGroup
	for range connections {
		clients.Go(func() {
			conn := <-c.idle
			defer func() { c.idle <- conn }()
			for r := range queue {
				left := time.Until(last)
				behind[r.i] = time.Since(r.due)
				var err error
				if left > 0 {
					err = c.do(&conn, left)
				}
				latencies[r.i] = time.Since(r.due)
				if err != nil || left <= 0 {
					unanswered.Add(1)
				}
			}
		})
	}
	// The clock has its own thread, which sleeps in the kernel. In an idle process, Go's timers are up
	// to a millisecond late, which would be most of the measured latency.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // 1 ns; the default is 50,000 ns
	for i := range n {
		due := begun.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		for wait := time.Until(due); wait > 0; wait = time.Until(due) {
			at := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&at, nil) // sleep again if the sleep was interrupted
		}
		queue <- request{i, due}
	}
	runtime.UnlockOSThread()
	close(queue)
	clients.Wait()
	slices.Sort(latencies)
	slices.Sort(behind)
	return slice{
		p50: latencies[n/2], p99: latencies[n*99/100], behind: behind[n*99/100], sent: n, unanswered: int(unanswered.Load()),
	}
}
