package tsdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/util/compression"
)

// tsdb repairs a damaged log when it opens: it removes the damaged record and everything behind it, and then answers
// as if these samples had never been written. A member of a group must not do that, since the other members have the
// samples: see Stores.NeverRepair. So its logs are checked before tsdb opens them.
//
// A kill tears the last write to a log. That is no damage: the write was not acknowledged, and tsdb cuts it off. After
// a power loss, anything may be missing behind the end of the last sync, and the group writes it again from its log.

// damageError says that a file is damaged.
type damageError struct {
	path   string
	offset int64 // in the file; -1 if not known
	cause  error
}

func (e *damageError) Error() string {
	if e.offset < 0 {
		return fmt.Sprintf("%s is damaged: %v", e.path, e.cause)
	}
	return fmt.Sprintf("%s is damaged at byte %d: %v", e.path, e.offset, e.cause)
}

func (e *damageError) Unwrap() error { return e.cause }

// checkLogs reads the logs of a closed store. It returns a *damageError, or an error of the disk.
func (s *store) checkLogs() error {
	last, known, err := readEnds(s.dir)
	if err != nil {
		last, known = ends{}, false // CutBack has reported the error of a raw store
	}
	for _, log := range logDirs {
		dir := filepath.Join(s.dir, log)
		all, err := segmentsOf(dir)
		if err != nil {
			return err
		}
		if all.checkpoint >= 0 {
			if err := checkCheckpoint(filepath.Join(dir, fmt.Sprintf(checkpointPrefix+"%08d", all.checkpoint))); err != nil {
				return err
			}
		}
		end := last.wal
		if log == "wbl" {
			end = last.wbl
		}
		err = checkSegments(dir, all.numbers, true)
		if damage := (*damageError)(nil); errors.As(err, &damage) && s.mayBeLost(known, &last, end, damage) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayBeLost reports whether a power loss may have damaged a store of tiles there: behind the end of its last sync, in
// another boot of the machine. A raw store was cut back to that end already.
func (s *store) mayBeLost(known bool, last *ends, end logEnd, damage *damageError) bool {
	if s.hasRequests() || known && last.boot != "" && last.boot == s.ends.boot {
		return false
	}
	number, _ := segment(filepath.Base(damage.path))
	return !known || number > end.segment || number == end.segment && damage.offset >= end.size
}

// checkCheckpoint reads a checkpoint of a log. Its directory was renamed when it was complete, so no write
// to it is torn.
func checkCheckpoint(dir string) error {
	all, err := segmentsOf(dir)
	for _, number := range all.numbers {
		if err == nil {
			err = checkSegment(segmentPath(dir, number), false)
		}
	}
	return err
}

// checkSegments reads the segments of a log. If mayTear is true, the last segment with records may have a torn write.
func checkSegments(log string, numbers []int, mayTear bool) error {
	filled := slices.Clone(numbers)
	for len(filled) > 0 {
		info, err := os.Stat(segmentPath(log, filled[len(filled)-1]))
		if err != nil {
			return err
		}
		if info.Size() > 0 {
			break
		}
		filled = filled[:len(filled)-1]
	}
	for i, number := range filled {
		if err := checkSegment(segmentPath(log, number), mayTear && i+1 == len(filled)); err != nil {
			return err
		}
	}
	return nil
}

// A segment has pages of pageBytes. A page has fragments of records, and then zeros. A fragment has a header: a byte
// with its part in the record and how the record is compressed, its length and its checksum.
const (
	fragmentHeader = 7
	partMask       = 7
	snappyBit      = 8
	zstdBit        = 16

	partNone, partFull, partFirst, partMiddle, partLast = 0, 1, 2, 3, 4
)

// segmentCheck reads a segment.
type segmentCheck struct {
	path    string
	mayTear bool
	decoder recordCheck
	record  []byte // the fragments of the record so far
	begun   int64  // where that record begins
	within  bool   // the record has fragments already
}

// checkSegment reads a segment, and returns a *damageError if it has damage. If mayTear is true, it may end with a part
// of a record.
func checkSegment(path string, mayTear bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	c := segmentCheck{path: path, mayTear: mayTear, decoder: newRecordCheck()}
	page := make([]byte, pageBytes)
	for offset := int64(0); ; offset += pageBytes {
		n, err := io.ReadFull(f, page)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if torn, err := c.page(offset, page[:n]); torn || err != nil {
			return err
		}
		if n < pageBytes {
			break
		}
	}
	if c.within && !mayTear {
		return c.damage(c.begun, errTorn)
	}
	return nil
}

var (
	errTorn     = errors.New("a record is torn")
	errFragment = errors.New("a part of a record has an impossible header")
	errPadding  = errors.New("a page has bytes behind its last record")
	errChecksum = errors.New("a record does not have its checksum")
	errRecord   = errors.New("a record cannot be decoded")
)

func (c *segmentCheck) damage(at int64, cause error) error { return &damageError{c.path, at, cause} }

// page reads the page at an offset; only the last page may be shorter than pageBytes. `torn` says that the
// page ends with a torn write.
func (c *segmentCheck) page(offset int64, page []byte) (torn bool, err error) {
	for at := 0; at < len(page); {
		here := offset + int64(at)
		part := page[at] & partMask
		if part == partNone {
			for _, b := range page[at:] {
				if b != 0 {
					return false, c.damage(here, errPadding)
				}
			}
			return false, nil
		}
		if rest := page[at+1:]; len(rest) < fragmentHeader-1 {
			if len(bytes.TrimRight(rest, "\x00")) == 0 && !c.within {
				return false, nil // tsdb reads a record without bytes, and leaves it there
			}
			return c.tear(here, len(page) < pageBytes)
		}
		end := at + fragmentHeader + int(binary.BigEndian.Uint16(page[at+1:]))
		switch {
		case end > pageBytes, (part == partFirst || part == partMiddle) && end != pageBytes,
			part > partLast, c.within == (part == partFull || part == partFirst):
			return false, c.damage(here, errFragment)
		case end > len(page) && !isCutOff(page[at:]):
			return false, c.damage(here, errFragment)
		case end > len(page):
			return c.tear(here, true)
		case crc32.Checksum(page[at+fragmentHeader:end], castagnoli) != binary.BigEndian.Uint32(page[at+3:]):
			return false, c.damage(here, errChecksum)
		}
		if !c.within {
			c.record, c.begun = c.record[:0], here
		}
		c.record = append(c.record, page[at+fragmentHeader:end]...)
		c.within = part == partFirst || part == partMiddle
		if !c.within && !c.decoder.decodes(page[at], c.record) {
			return false, c.damage(c.begun, errRecord)
		}
		at = end
	}
	return false, nil
}

// tear handles a record that the end of the file cuts off.
func (c *segmentCheck) tear(at int64, atEnd bool) (torn bool, err error) {
	if !c.mayTear || !atEnd {
		return false, c.damage(at, errTorn)
	}
	return true, nil
}

// isCutOff tells a fragment that is cut off by the end of the file from a whole fragment whose length is damaged.
func isCutOff(rest []byte) bool {
	want := binary.BigEndian.Uint32(rest[3:])
	checksum := uint32(0)
	for i := fragmentHeader; i < len(rest); i++ {
		if checksum = crc32.Update(checksum, castagnoli, rest[i:i+1]); checksum == want {
			return false
		}
	}
	return true
}

// recordCheck decodes records. The checksum of a record does not cover how it is compressed. If that is damaged, a
// record that tsdb takes for uncompressed is some other record, or of an unknown type, which tsdb skips.
type recordCheck struct {
	decoder    record.Decoder
	buffer     compression.DecodeBuffer
	series     []record.RefSeries
	samples    []record.RefSample
	histograms []record.RefHistogramSample
	floats     []record.RefFloatHistogramSample
	exemplars  []record.RefExemplar
	markers    []record.RefMmapMarker
	metadata   []record.RefMetadata
}

func newRecordCheck() recordCheck {
	return recordCheck{decoder: record.NewDecoder(nil, slog.New(slog.DiscardHandler)),
		buffer: compression.NewSyncDecodeBuffer()}
}

// decodes reports whether a record can be decoded. `header` is the first byte of its last fragment.
func (c *recordCheck) decodes(header byte, rec []byte) bool {
	var err error
	switch {
	case len(rec) == 0:
		return true
	case header&snappyBit != 0:
		_, err = compression.Decode(compression.Snappy, rec, c.buffer)
		return err == nil
	case header&zstdBit != 0:
		_, err = compression.Decode(compression.Zstd, rec, c.buffer)
		return err == nil
	}
	switch c.decoder.Type(rec) {
	case record.Series:
		c.series, err = c.decoder.Series(rec, c.series[:0])
	case record.Samples, record.SamplesV2:
		c.samples, err = c.decoder.Samples(rec, c.samples[:0])
	case record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2:
		c.histograms, err = c.decoder.HistogramSamples(rec, c.histograms[:0])
	case record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
		c.floats, err = c.decoder.FloatHistogramSamples(rec, c.floats[:0])
	case record.Exemplars:
		c.exemplars, err = c.decoder.Exemplars(rec, c.exemplars[:0])
	case record.MmapMarkers:
		c.markers, err = c.decoder.MmapMarkers(rec, c.markers[:0])
	case record.Metadata:
		c.metadata, err = c.decoder.Metadata(rec, c.metadata[:0])
	case record.Tombstones:
		_, err = c.decoder.Tombstones(rec, nil)
	default:
		return false
	}
	return err == nil
}
