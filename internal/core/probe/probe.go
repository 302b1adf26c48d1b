// Package probe is what Freshet sends to itself to measure freshness: the datagram, by which
// a listener tells it from what applications send, and the series that it becomes, in the
// tenant of Freshet itself. When to send and to ask is role/prober's business.
package probe

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/series"
)

// Metric is the gauge that is sent. Its value is when, in Unix seconds.
const Metric = "freshet_probe"

// The ways of a probe, which its label path has.
const (
	DogStatsD   = "dogstatsd"
	RemoteWrite = "remote_write"
)

// Mark is what the probes of one Freshet have and no other line: an application that sends a
// gauge freshet_probe has a series of its own.
type Mark struct {
	id     string // label prober
	prefix string // of each datagram
}

// NewMark makes the mark of the collector with that sender. It is the same after a restart,
// and so are the series, and the datagrams that a restart in place finds in a socket.
func NewMark(sender uint64) *Mark {
	var text [8]byte
	binary.BigEndian.PutUint64(text[:], sender)
	sum := sha256.Sum256(append([]byte(Metric), text[:]...)) // the sender itself is in batches
	id := hex.EncodeToString(sum[:8])
	return &Mark{id: id, prefix: Metric + "." + id + ":"}
}

// Datagram is a line of DogStatsD that is sent at a time.
func (m *Mark) Datagram(at time.Time) []byte {
	return append(strconv.AppendFloat([]byte(m.prefix), Seconds(at), 'f', 6, 64), "|g"...)
}

// On reports whether a datagram is a probe of this Freshet: one line as Datagram writes it, and
// nothing behind it. A longer one is an application's, whose other lines count. There is none
// without a mark.
func (m *Mark) On(packet []byte) bool {
	if m == nil || len(packet) <= len(m.prefix) || string(packet[:len(m.prefix)]) != m.prefix {
		return false
	}
	whole, fraction, _ := bytes.Cut(packet[len(m.prefix):], []byte{'.'})
	fraction, gauge := bytes.CutSuffix(fraction, []byte("|g"))
	return gauge && digits(whole) && digits(fraction)
}

// digits reports whether text is a number of decimal digits, one at least.
func digits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) > 0
}

// Labels are those of the series of a way: of a tenant's socket, or of remote write, which
// has no tenant of its own.
func (m *Mark) Labels(path, tenant string) labels.Labels {
	return labels.FromMap(map[string]string{model.MetricNameLabel: Metric, "path": path, "prober": m.id, "tenant": tenant})
}

// AppendKey appends the key of the gauge that datagrams to a tenant's socket become.
func (m *Mark) AppendKey(dst []byte, tenant string) []byte {
	return series.AppendKey(dst, series.Gauge, m.Labels(DogStatsD, tenant))
}

// Seconds is a time as the value of a probe, exact to a microsecond.
func Seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
