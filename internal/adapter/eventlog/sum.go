package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/crc64"

	"go.etcd.io/bbolt"

	"github.com/freshet-io/freshet/internal/lib/boltfile"
)

// Pages of bbolt have no checksums, so the file has the sum of the checksums of all its events. A release that does not
// know the sum leaves it as it is, but raises the sequence of a tenant with each event that it writes.

// sumKey is the key of the sum, in reachedBucket. The keys of groups are shorter.
var sumKey = []byte("sum of events")

// sum is what sumKey has: docs/format/databases.md.
type sum struct {
	sequences uint64 // of all tenants, added up
	events    uint64 // checksums of all events and of the entries reached, added up
}

const (
	sumVersion = 1
	sumSize    = 1 + 8 + 8 + 4
)

var (
	iso        = crc64.MakeTable(crc64.ISO)
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// checksum returns the checksum of a pair in a bucket.
func checksum(bucket string, k, v []byte) uint64 {
	sum := crc64.Update(0, iso, []byte(bucket))
	for _, part := range [][]byte{k, v} {
		sum = crc64.Update(sum, iso, binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		sum = crc64.Update(sum, iso, part)
	}
	return sum
}

// readSum returns the sum that the file has. `known` is false if it has none, or a damaged one.
func readSum(tx *bbolt.Tx) (s sum, known bool) {
	b := tx.Bucket([]byte(reachedBucket))
	if b == nil {
		return s, false
	}
	v := b.Get(sumKey)
	if len(v) != sumSize || v[0] != sumVersion ||
		crc32.Checksum(v[:sumSize-4], castagnoli) != binary.LittleEndian.Uint32(v[sumSize-4:]) {
		return s, false
	}
	return sum{binary.LittleEndian.Uint64(v[1:]), binary.LittleEndian.Uint64(v[9:])}, true
}

func (s sum) write(tx *bbolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists([]byte(reachedBucket))
	if err != nil {
		return err
	}
	v := append(make([]byte, 0, sumSize), sumVersion)
	v = binary.LittleEndian.AppendUint64(v, s.sequences)
	v = binary.LittleEndian.AppendUint64(v, s.events)
	return b.Put(sumKey, binary.LittleEndian.AppendUint32(v, crc32.Checksum(v, castagnoli)))
}

// compare returns an error if the file has the sum of other events than it has. `is` is the sum of its events.
func (s sum) compare(is sum) error {
	if s.sequences == is.sequences && s.events != is.events {
		return errors.New("the events do not have their checksum")
	}
	return nil
}

// Verify reads all events, and returns an error if they are not those that were written.
func (l *Log) Verify() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.db.Verify(verify); err != nil {
		return fmt.Errorf("the event log %s: %w", l.db.Path(), err)
	}
	return nil
}

// VerifyCopy does what Verify does with a log that no process has open.
func VerifyCopy(path string) error { return boltfile.Check(path, verify) }

func verify(tx *bbolt.Tx) error {
	c, err := count(tx)
	if err != nil {
		return &boltfile.DamageError{Cause: err}
	}
	if s, known := readSum(tx); known {
		return s.compare(c.sum)
	}
	return nil
}
