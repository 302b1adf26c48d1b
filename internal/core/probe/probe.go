// Package probe describes the probes that Freshet sends to itself to measure freshness. A listener
// can tell a probe's datagram from the datagrams of applications, and the probe becomes a series in
// Freshet's own tenant. role/prober decides when to send and query.
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

// Metric is the name of the gauge that a probe sends. Its value is the time of sending, in Unix seconds.
const Metric = "freshet_probe"

// The paths of a probe through Freshet, which are the values of the label "path".
const (
	DogStatsD   = "dogstatsd"
	RemoteWrite = "remote_write"
)

// Mark is in every probe of one Freshet and in no other line. So if an application has a gauge
// freshet_probe of its own, that gauge is another series.
type Mark struct {
	id     string // value of the label prober
	prefix string // prefix of every datagram
}

// NewMark returns the mark of the collector with this producer number. A restart does not change
// the mark, so the series stay the same. After a restart in place the process recognizes the probes
// that wait in its socket.
func NewMark(producer uint64) *Mark {
	var text [8]byte
	binary.BigEndian.PutUint64(text[:], producer)
	sum := sha256.Sum256(append([]byte(Metric), text[:]...)) // a hash, since batches show the number itself
	id := hex.EncodeToString(sum[:8])
	return &Mark{id: id, prefix: Metric + "." + id + ":"}
}

// Datagram returns the line of DogStatsD to send at that time.
func (m *Mark) Datagram(at time.Time) []byte {
	return append(strconv.AppendFloat([]byte(m.prefix), Seconds(at), 'f', 6, 64), "|g"...)
}

// On(packet) reports whether a datagram is a probe of this Freshet: a single line as written by
// Datagram. A datagram with further lines comes from an application, and these lines must be counted.
// For a nil Mark, On returns false.
func (m *Mark) On(packet []byte) bool {
	if m == nil || len(packet) <= len(m.prefix) || string(packet[:len(m.prefix)]) != m.prefix {
		return false
	}
	whole, fraction, _ := bytes.Cut(packet[len(m.prefix):], []byte{'.'})
	fraction, gauge := bytes.CutSuffix(fraction, []byte("|g"))
	return gauge && digits(whole) && digits(fraction)
}

// digits reports whether `text` is a decimal number of at least one digit.
func digits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) > 0
}

// Labels returns the labels of a path's series. For the path of remote write, tenant is empty.
func (m *Mark) Labels(path, tenant string) labels.Labels {
	return labels.FromMap(map[string]string{model.MetricNameLabel: Metric, "path": path, "prober": m.id, "tenant": tenant})
}

// AppendKey appends the key of the gauge for the probes that a tenant's socket receives.
func (m *Mark) AppendKey(dst []byte, tenant string) []byte {
	return series.AppendKey(dst, series.Gauge, m.Labels(DogStatsD, tenant))
}

// Seconds returns a time as the value of a probe, exact to a microsecond.
func Seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
