package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// load is the result of one load.
type load struct{ rate, p50, p99 float64 } // rate in requests a second, the others in ms

// openLoop sends requests at a fixed rate, and measures the latency of each request from the time when
// the request was due. So a service that hangs gets no fewer requests, and its pauses show in the
// latencies.
func openLoop(address string, rate float64, length time.Duration) (load, error) {
	const connections = 64
	n := int(rate * length.Seconds())
	latencies := make([]time.Duration, n)
	due := make(chan int, n) // has room for all, so that sending a request never blocks
	at := func(i int) time.Duration { return time.Duration(float64(i) / rate * float64(time.Second)) }
	begun := time.Now()
	var clients sync.WaitGroup
	failed := make(chan error, connections)
	for range connections {
		clients.Go(func() {
			c, err := dial(address)
			for i := range due {
				if err != nil {
					break
				}
				err = c.ask()
				latencies[i] = time.Since(begun) - at(i)
			}
			if c != nil {
				c.Close()
			}
			failed <- err
		})
	}
	for i := range n {
		if wait := at(i) - time.Since(begun); wait > 0 {
			time.Sleep(wait)
		}
		due <- i
	}
	close(due)
	clients.Wait()
	for range connections {
		if err := <-failed; err != nil {
			return load{}, fmt.Errorf("request at a fixed rate: %w", err)
		}
	}
	took := time.Since(begun)
	slices.Sort(latencies)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return load{float64(n) / took.Seconds(), ms(latencies[n/2]), ms(latencies[n*99/100])}, nil
}

// connection is a minimal HTTP client. The client of net/http would take processor time from the
// service.
type connection struct {
	net.Conn
	r       *bufio.Reader
	request []byte
}

func dial(address string) (*connection, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: c, r: bufio.NewReader(c)}, nil
}

func (c *connection) ask() error {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	c.request = fmt.Appendf(c.request[:0],
		"GET /v1/coverage?origin=%08d&destination=%08d HTTP/1.1\r\nHost: localhost\r\n\r\n", rand.IntN(1e8), rand.IntN(1e8))
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	length := -1
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("the service answered %s", bytes.TrimSpace(line))
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
