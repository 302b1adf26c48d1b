//go:build linux

package loadgen

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// connection is a connection to a receiver of remote write, opened on demand. It writes HTTP/1.1
// itself: net/http's client takes two goroutines and 30 us for a request, at the expense of a
// receiver on the same machine.
type connection struct {
	*Writer
	net.Conn
	reader *bufio.Reader
	head   []byte // the head of a request, reused
}

const (
	attemptLimit = 30 * time.Second // longest wait for one answer, like Prometheus' remote_timeout
	patience     = time.Minute      // longest time of retries while all answers are 5xx
	firstBackoff = 30 * time.Millisecond
	lastBackoff  = 5 * time.Second
	maxAnswer    = 64 << 10 // how many bytes of an answer's text are read
)

// answer is the final outcome of a request.
type answer struct {
	written int    // samples that the receiver stored
	retries int    // attempts before the final answer
	said    string // status and text
	goneOn  bool   // the request was answered with 503 and not retried (WriterConfig.GoOn)
}

// write sends request k of a round, and retries until an answer is final.
func (c *connection) write(ctx context.Context, k int, request remoteload.Request) (a answer, err error) {
	backoff := retry.Backoff{Min: firstBackoff, Max: lastBackoff}
	for begun := time.Now(); ; a.retries++ {
		response, err := c.post(ctx, k, request.Body)
		wait := backoff.Next()
		switch {
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case err != nil:
			err = fmt.Errorf("write to %s: %w", c.config.URL, err)
		case c.config.GoOn && response.status == http.StatusServiceUnavailable:
			a.said, a.goneOn = response.said, true
			return a, nil
		case response.status/100 == 5:
			err = fmt.Errorf("write to %s: answered %s", c.config.URL, response.said)
			wait = max(wait, response.retryAfter)
		default:
			a.said = response.said
			a.written, err = response.written(request.Samples, c.load.Version)
			if err != nil {
				err = fmt.Errorf("write to %s: %w", c.config.URL, err)
			}
			return a, err
		}
		if time.Since(begun)+wait > patience {
			return a, fmt.Errorf("%w; gave up after %d attempts in %v", err, a.retries+1, time.Since(begun).Round(time.Second))
		}
		if err := retry.Wait(ctx, wait); err != nil {
			return a, err
		}
	}
}

// response is the answer to one attempt.
type response struct {
	status     int
	said       string // status and text
	samples    string // the header with the number of written samples; empty if absent
	retryAfter time.Duration
}

// written returns how many samples of a request the receiver stored, out of `samples`.
func (r response) written(samples, version int) (int, error) {
	ok := r.status/100 == 2
	switch {
	case r.samples != "" && (ok || r.status == http.StatusBadRequest || r.status == http.StatusTooManyRequests):
		n, err := strconv.Atoi(r.samples)
		if err != nil || n < 0 || n > samples {
			return 0, fmt.Errorf("the answer says that %q of the %d samples were written", r.samples, samples)
		}
		return n, nil
	case !ok:
		return 0, errors.New("answered " + r.said)
	case version == 2: // version 2 requires the headers
		return 0, fmt.Errorf("answered %s without saying how many samples were written; the receiver does not "+
			"understand version 2 of remote write", r.said)
	}
	return samples, nil
}

// post makes one attempt to send request k of a round.
func (c *connection) post(ctx context.Context, k int, body []byte) (r response, err error) {
	if c.Conn == nil {
		if err := c.open(ctx); err != nil {
			return r, err
		}
	}
	conn := c.Conn
	// a deadline in the past ends reading and writing
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := conn.SetDeadline(time.Now().Add(attemptLimit)); err != nil {
		return r, err
	}
	if ctx.Err() != nil { // ctx may have ended before the deadline was set
		return r, context.Cause(ctx)
	}
	c.head = c.appendHead(c.head[:0], k, len(body))
	parts := net.Buffers{c.head, body}
	if _, err := parts.WriteTo(conn); err != nil {
		return r, err
	}
	answer, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return r, err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return r, err
	}
	if answer.Close || len(text) == maxAnswer {
		c.close()
	}
	r = response{status: answer.StatusCode, said: answer.Status,
		samples:    answer.Header.Get("X-Prometheus-Remote-Write-Samples-Written"),
		retryAfter: retryAfter(answer.Header.Get("Retry-After"))}
	if len(text) > 0 {
		r.said += ": " + strings.TrimSpace(string(text))
	}
	return r, answer.Body.Close()
}

// retryAfter parses the header Retry-After. It returns 0 if the value is not a number of seconds.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func (c *connection) appendHead(b []byte, k, length int) []byte {
	kind, version := "prometheus.WriteRequest", "0.1.0"
	if c.load.Version == 2 {
		kind, version = "io.prometheus.write.v2.Request", "2.0.0"
	}
	b = fmt.Appendf(b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Encoding: snappy\r\n"+
		"Content-Type: application/x-protobuf;proto=%s\r\nX-Prometheus-Remote-Write-Version: %s\r\nContent-Length: %d\r\n",
		c.target.RequestURI(), c.target.Host, kind, version, length)
	if len(c.config.Header["User-Agent"]) == 0 {
		b = append(b, "User-Agent: freshet-bench\r\n"...)
	}
	for name, values := range c.config.Header {
		for _, v := range values {
			b = fmt.Appendf(b, "%s: %s\r\n", name, v)
		}
	}
	if n := len(c.config.Tenants); n > 0 {
		b = fmt.Appendf(b, "X-Scope-OrgID: %s\r\n", c.config.Tenants[k%n])
	}
	return append(b, "\r\n"...)
}

// open connects to the receiver.
func (c *connection) open(ctx context.Context) (err error) {
	tlsPort := c.target.Scheme == "https"
	address := net.JoinHostPort(c.target.Hostname(),
		cmp.Or(c.target.Port(), map[bool]string{false: "80", true: "443"}[tlsPort]))
	dialer := &net.Dialer{Timeout: attemptLimit}
	if tlsPort {
		c.Conn, err = (&tls.Dialer{NetDialer: dialer, Config: c.config.TLS}).DialContext(ctx, "tcp", address)
	} else {
		c.Conn, err = dialer.DialContext(ctx, "tcp", address)
	}
	if err != nil {
		c.Conn = nil
		return err
	}
	c.reader = bufio.NewReader(c.Conn)
	return nil
}

func (c *connection) close() {
	if c.Conn != nil {
		_ = c.Conn.Close()
		c.Conn = nil
	}
}
