// Package series holds what identifies a series and how its increments combine: its kind, the
// bytes of its key, its shard, and the policy that rules gave it. Package mapping makes series
// from DogStatsD lines, and package tile combines their samples.
package series

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Kind is how the values of a series combine.
type Kind uint8

const (
	Counter Kind = iota + 1 // increments add up
	Gauge                   // the last value holds
	Timer                   // values form a distribution, kept as a histogram: DogStatsD's types ms, h and d
	Set                     // the number of distinct values
	Check                   // a service check's last status, 0 to 3
	UpDown                  // increments of either sign add up: a gauge in queries

	LastKind = UpDown
)

var kindNames = [...]string{
	Counter: "counter", Gauge: "gauge", Timer: "timer", Set: "set", Check: "check", UpDown: "updown",
}

// String returns the kind's name in the documentation.
func (k Kind) String() string {
	if k.Valid() {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Valid reports whether k is one of the kinds above.
func (k Kind) Valid() bool { return k >= Counter && k <= LastKind }

// MetricType returns the kind's type in Prometheus' metadata.
func (k Kind) MetricType() string {
	switch k {
	case Counter:
		return "counter"
	case Timer:
		return "histogram"
	default:
		// A set is stored as the number of its distinct values, a check as its status, an up/down counter
		// as its total.
		return "gauge"
	}
}

// Shards is the number of virtual shards. It never changes, since it decides where data lies.
const Shards = 1024

// Shard returns the shard of a tenant's series. It is the same in every process
// and every version: it decides which instance owns a series.
func Shard(tenant string, key []byte) uint16 {
	var buf [256]byte
	if len(tenant)+1+len(key) <= len(buf) { // a copy costs less than a digest
		b := append(buf[:0], tenant...)
		b = append(b, 0)
		b = append(b, key...)
		return uint16(xxhash.Sum64(b) >> 54)
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(tenant)
	_, _ = d.Write([]byte{0})
	_, _ = d.Write(key)
	return uint16(d.Sum64() >> 54)
}

// AppendKey appends the key of a series to `dst`: its kind in one byte, then each label in the
// order of `ls`, as name and value, each preceded by its length as a uvarint. `ls` must be sorted,
// as labels.Labels are, and contain __name__. Layout: docs/format/batch.md.
func AppendKey(dst []byte, kind Kind, ls labels.Labels) []byte {
	dst = append(dst, byte(kind))
	ls.Range(func(l labels.Label) { dst = AppendLabel(dst, l.Name, l.Value) })
	return dst
}

// AppendLabel appends one label of a key.
func AppendLabel(dst []byte, name, value string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	dst = append(dst, name...)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

var errKey = errors.New("series key is malformed")

// ParseKey is the inverse of AppendKey. The labels are copies. It refuses labels that are
// unsorted, repeated or empty, so that each series has only one key.
func ParseKey(key []byte) (Kind, labels.Labels, error) {
	if len(key) == 0 || !Kind(key[0]).Valid() {
		return 0, labels.EmptyLabels(), errKey
	}
	kind, rest := Kind(key[0]), string(key[1:])
	var b labels.ScratchBuilder
	last := ""
	for rest != "" {
		var name, value string
		var ok bool
		if name, rest, ok = cutString(rest); !ok || name <= last {
			return 0, labels.EmptyLabels(), errKey
		}
		if value, rest, ok = cutString(rest); !ok || value == "" {
			return 0, labels.EmptyLabels(), errKey
		}
		b.Add(name, value)
		last = name
	}
	ls := b.Labels()
	if ls.Get(model.MetricNameLabel) == "" {
		return 0, labels.EmptyLabels(), errKey
	}
	return kind, ls, nil
}

// Name returns the value of __name__ in a key that AppendKey wrote, or nil if there is none. The value
// points into `key`. Name costs a fraction of ParseKey.
func Name(key []byte) []byte {
	for name, value := range KeyLabels(key) {
		if string(name) == model.MetricNameLabel {
			return value
		}
	}
	return nil
}

// Renamed returns a copy of a key, with `name` as the value of __name__.
func Renamed(key []byte, name string) []byte {
	renamed := append(make([]byte, 0, len(key)+len(name)), key[0])
	for label, value := range KeyLabels(key) {
		if string(label) == model.MetricNameLabel {
			renamed = AppendLabel(renamed, string(label), name)
			continue
		}
		renamed = AppendLabel(renamed, string(label), string(value))
	}
	return renamed
}

// KeyLabels yields the labels in a key of AppendKey, up to its end or the first malformed
// label. Names and values point into `key`.
func KeyLabels(key []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if len(key) == 0 {
			return
		}
		for rest := key[1:]; len(rest) > 0; {
			var pair [2][]byte
			for i := range pair {
				n, size := binary.Uvarint(rest)
				if size <= 0 || n > uint64(len(rest)-size) {
					return
				}
				pair[i], rest = rest[size:size+int(n)], rest[size+int(n):]
			}
			if !yield(pair[0], pair[1]) {
				return
			}
		}
	}
}

// cutString takes one length-prefixed string from the front of s.
func cutString(s string) (head, rest string, ok bool) {
	var n uint64
	for i := 0; i < len(s) && i < 5; i++ { // five bytes hold any length below 32 GiB
		n |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			if i > 0 && s[i] == 0 { // a longer spelling of the same number
				return "", "", false
			}
			s = s[i+1:]
			if n > uint64(len(s)) {
				return "", "", false
			}
			return s[:n], s[n:], true
		}
	}
	return "", "", false
}
