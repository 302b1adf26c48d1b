package prober

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// socket sends datagrams to a target, all from one socket. With a new socket for each datagram,
// each datagram would appear to come from a new sender.
type socket struct {
	target Target
	conn   net.Conn // nil before the first datagram, and after an error
}

// send sends a datagram as any DogStatsD client would. If the listener no longer exists, send
// tries once more with a new socket, since a restart may have bound the address again.
func (s *socket) send(packet []byte, at time.Time) (err error) {
	for range 2 {
		if s.conn == nil {
			if s.conn, err = net.Dial(s.target.Network, reachable(s.target)); err != nil {
				s.conn = nil
				return err
			}
		}
		if err = s.conn.SetWriteDeadline(at.Add(interval)); err == nil { // the queue of a Unix socket may be full
			_, err = s.conn.Write(packet)
		}
		if err == nil {
			return nil
		}
		s.close()
	}
	return err
}

func (s *socket) close() {
	if s.conn != nil {
		_ = s.conn.Close() // the error does not matter, since nothing is left to be sent
		s.conn = nil
	}
}

// reachable returns the address at which this machine reaches a socket that listens on all
// addresses.
func reachable(t Target) string {
	host, port, err := net.SplitHostPort(t.Address)
	ip := net.ParseIP(host)
	switch {
	case t.Network != "udp" || err != nil || ip == nil || !ip.IsUnspecified():
		return t.Address
	case ip.To4() != nil:
		return net.JoinHostPort("127.0.0.1", port)
	}
	return net.JoinHostPort("::1", port)
}

// write hands a remote-write request to the handler directly. Over the network it would need a
// token or a certificate.
func (p *Prober) write(ctx context.Context, at time.Time) error {
	series := prompb.TimeSeries{Samples: []prompb.Sample{{Value: probe.Seconds(at), Timestamp: at.UnixMilli()}}}
	p.Mark.Labels(probe.RemoteWrite, tenant.Own).Range(func(l labels.Label) {
		series.Labels = append(series.Labels, prompb.Label{Name: l.Name, Value: l.Value})
	})
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series}}).Marshal()
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/write", bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	answer := recorded{header: http.Header{}, status: http.StatusOK}
	p.Write.ServeHTTP(&answer, r)
	if answer.status/100 != 2 {
		return fmt.Errorf("remote write: %d %s", answer.status, bytes.TrimSpace(answer.body.Bytes()))
	}
	return nil
}

// recorded keeps the answer of a handler.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(p []byte) (int, error) { return r.body.Write(p) }
