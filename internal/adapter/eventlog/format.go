package eventlog

import (
	"encoding/binary"
	"fmt"
	"math"
)

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

// decode is the inverse of key and event.Append. The result owns its memory.
func decode(tenant string, k, v []byte) (r Event, err error) {
	if len(k) != keySize {
		return r, fmt.Errorf("event of tenant %s: its key has %d bytes instead of %d", tenant, len(k), keySize)
	}
	if err := r.Parse(v); err != nil {
		return r, fmt.Errorf("event %x of tenant %s: %w", k, tenant, err)
	}
	r.Tenant = tenant
	r.Time, r.ID = parseKey(k)
	return r, nil
}
