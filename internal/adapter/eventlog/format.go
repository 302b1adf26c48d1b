package eventlog

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/event"
)

// version is the first byte of every value.
const version = 1

const keySize = 16

// key orders events by time and then by arrival. It inverts the sign bit, so that times before
// 1970 sort first.
func key(t int64, id uint64) []byte {
	k := make([]byte, 0, keySize)
	k = binary.BigEndian.AppendUint64(k, uint64(t)^(1<<63))
	return binary.BigEndian.AppendUint64(k, id)
}

// parseKey is the inverse of key. The key must have passed decode.
func parseKey(k []byte) (t int64, id uint64) {
	return int64(binary.BigEndian.Uint64(k) ^ (1 << 63)), binary.BigEndian.Uint64(k[8:])
}

// lastKey sorts after every event of time t.
func lastKey(t int64) []byte { return key(t, math.MaxUint64) }

// encode returns an event's value: the version, then the strings below in this order, then the
// tags. Each string follows its length as a uvarint.
func encode(e *event.Event) []byte {
	v := []byte{version}
	for _, s := range []string{e.Title, e.Text, e.Host, e.Key, e.Priority, e.Source, e.Alert} {
		v = appendString(v, s)
	}
	for _, tag := range e.Tags {
		v = appendString(v, tag)
	}
	return v
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// decode is the inverse of key and encode. The result owns its memory.
func decode(tenant string, k, v []byte) (r Event, err error) {
	if len(k) != keySize {
		return r, fmt.Errorf("event of tenant %s: its key has %d bytes instead of %d", tenant, len(k), keySize)
	}
	if len(v) == 0 || v[0] != version {
		return r, fmt.Errorf("event %x of tenant %s: its version is not %d", k, tenant, version)
	}
	r.Tenant = tenant
	r.Time, r.ID = parseKey(k)
	rest, ok := string(v[1:]), true
	for _, s := range []*string{&r.Title, &r.Text, &r.Host, &r.Key, &r.Priority, &r.Source, &r.Alert} {
		if *s, rest, ok = cutString(rest); !ok {
			return r, fmt.Errorf("event %x of tenant %s: cut short", k, tenant)
		}
	}
	for rest != "" {
		var tag string
		if tag, rest, ok = cutString(rest); !ok {
			return r, fmt.Errorf("event %x of tenant %s: its tags are cut short", k, tenant)
		}
		r.Tags = append(r.Tags, tag)
	}
	return r, nil
}

// cutString cuts one string, which follows its length, off the front of s.
func cutString(s string) (head, rest string, ok bool) {
	n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	if size <= 0 || n > uint64(len(s)-size) {
		return "", "", false
	}
	return s[size : size+int(n)], s[size+int(n):], true
}
