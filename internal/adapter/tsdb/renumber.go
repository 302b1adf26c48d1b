package tsdb

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// A series that a compaction removed from memory gets a second number when it comes back. If an
// opening finds both numbers in the log, it keeps the series under the first one. tsdb has moved late
// samples of the series into chunks, and the opening loads only the chunks with the last number. The
// log of late samples has markers that say that the samples before them are in a chunk, and at a
// marker the opening drops these samples from memory. So late samples that were written under the
// first number are lost: https://github.com/prometheus/prometheus/issues/19804.
//
// A second loss is rarer. The log of late samples may have samples under the last number, while a
// checkpoint of the other log leaves out the record of that number, because the series is kept under the
// first one. If the process dies before it compacts the late samples, the next opening does not know to
// which series they belong: https://github.com/prometheus/prometheus/issues/19744.
//
// A third loss needs a kill or a power loss. tsdb writes chunks in pieces of up to 64 KiB, but logs
// their markers at once. So a marker may name a chunk that is in no file. The next opening ignores the
// marker, because its position is behind the end of the last file, and makes the chunk again at
// another position. A later opening trusts the marker, because other chunks have reached its position
// by then.

// renumber gives the late samples of a closed database the numbers under which the next opening keeps
// their series. It also removes the markers of series with several numbers, and the markers of series
// with a missing chunk, so that the opening reads all their late samples from the log. Some of these
// samples may be in chunks, too: queries and compactions take each sample once. renumber returns the
// contents of the log of late samples and of the chunk files.
//
// Each opening makes new chunks of the late samples without markers, until a compaction takes these
// samples. Once most of the chunks are copies, renumber removes the chunk files.
//
// renumber replaces one segment at a time, by a rename. If the process dies, the next opening
// replaces the remaining segments.
func renumber(dir string, compress compression.Type) (late lateFiles, err error) {
	temporary := filepath.Join(dir, "wbl.new")
	for _, left := range []string{temporary, filepath.Join(dir, oldChunks)} { // left by a process that died
		if err := os.RemoveAll(left); err != nil {
			return late, err
		}
	}
	late, err = readLate(dir)
	if err != nil {
		return late, err
	}
	segments, err := filledSegments(filepath.Join(dir, "wbl"))
	if err != nil || len(segments) == 0 {
		return late, err
	}
	if late.chunked > mostCopies*late.logged+spareCopies {
		clear(late.there)
		if err := removeChunks(dir); err != nil {
			return late, err
		}
	}
	kept, err := keptNumbers(dir)
	if err != nil {
		return late, err
	}
	for m := range late.markers {
		if _, several := kept[m.Ref]; !several && !late.there[m] {
			kept[m.Ref] = m.Ref
		}
	}
	if late.several = len(kept) > 0; !late.several {
		return late, nil
	}
	for _, path := range segments {
		changes, err := kept.changes(path)
		if err != nil { // tsdb's repair cuts a damaged log here, and the database is opened again
			return late, environment(err)
		}
		if !changes {
			continue
		}
		err = kept.write(path, temporary, compress)
		if err := errors.Join(err, os.RemoveAll(temporary)); err != nil {
			return late, err
		}
	}
	return late, nil
}

const (
	// mostCopies bounds how many late samples the chunks have for each late sample in the log. With
	// four copies, a query of late samples takes four times as long. A lower bound would slow down
	// more openings, because an opening without chunks reads all samples from the logs.
	mostCopies = 4

	// spareCopies is a number of samples, about 2000 chunks, that is too small to be worth the removal.
	// It also allows for samples in the newest chunk file that a compaction has put into a block.
	spareCopies = 64 << 10
)

// filledSegments returns the paths of the segments of a log that have records.
func filledSegments(log string) (paths []string, err error) {
	entries, err := os.ReadDir(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if _, ok := segment(e.Name()); !ok {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if info.Size() > 0 {
			paths = append(paths, filepath.Join(log, e.Name()))
		}
	}
	return paths, err
}

// readSegment calls fn with each record of a segment.
func readSegment(path string, fn func(rec []byte) error) error {
	file, err := wlog.OpenReadSegment(path)
	if err != nil {
		return err
	}
	records := wlog.NewSegmentBufReader(file)
	defer records.Close()
	r := wlog.NewReader(records)
	for r.Next() {
		if err := fn(r.Record()); err != nil {
			return err
		}
	}
	return r.Err()
}

// changes reports whether a segment of the log of late samples must change.
func (n numbers) changes(path string) (changes bool, err error) {
	err = readSegment(path, func(rec []byte) error {
		_, changed, err := n.change(rec)
		changes = changes || changed
		return err
	})
	return changes, err
}

// numbers has all numbers of the series whose markers are removed. It maps each number to the
// number under which an opening keeps the series.
type numbers map[chunks.HeadSeriesRef]chunks.HeadSeriesRef

// keptNumbers returns the series with several numbers. It reads the log of a closed database up to the
// first damage. Reading takes a tenth of the time of an opening. Until keptNumbers returns, it needs 100
// bytes of memory for each series.
func keptNumbers(dir string) (numbers, error) {
	kept := numbers{}
	first := map[[sha256.Size]byte]chunks.HeadSeriesRef{} // by the hash of the labels
	decoder := record.NewDecoder(nil, slog.New(slog.DiscardHandler))
	var series []record.RefSeries
	var buf []byte
	err := eachRecord(func(rec []byte) (err error) {
		if decoder.Type(rec) != record.Series {
			return nil
		}
		series, err = decoder.Series(rec, series[:0])
		for _, s := range series {
			buf = s.Labels.Bytes(buf)
			hash := sha256.Sum256(buf)
			number, known := first[hash]
			switch {
			case !known:
				first[hash] = s.Ref
			case number != s.Ref:
				kept[number], kept[s.Ref] = number, number
			}
		}
		return err
	}, walRanges(dir)...)
	return kept, err
}

// largestSegment is larger than any rewritten segment: tsdb begins a new segment at 128 MiB, and
// another number makes a sample at most 9 bytes longer.
const largestSegment = 1 << 30

// write replaces a segment. `temporary` must not exist; write makes it as a directory.
func (n numbers) write(path, temporary string, compress compression.Type) error {
	log, err := wlog.NewSize(nil, nil, temporary, largestSegment, compress)
	if err != nil {
		return needsRoom(path, err)
	}
	err = readSegment(path, func(rec []byte) error {
		records, _, err := n.change(rec)
		if err != nil {
			return err
		}
		return log.Log(records...)
	})
	if err == nil {
		err = log.Sync() // before the rename; after a power loss, the old segment may be back
	}
	if err := cmp.Or(err, log.Close()); err != nil {
		return needsRoom(path, err)
	}
	return os.Rename(wlog.SegmentName(temporary, 0), path)
}

// change returns the records that replace a record of the log of late samples, and whether they
// differ from it.
func (n numbers) change(rec []byte) (records [][]byte, changed bool, err error) {
	decoder := record.NewDecoder(nil, slog.New(slog.DiscardHandler))
	var encoder record.Encoder
	switch decoder.Type(rec) {
	case record.SamplesV2, record.HistogramSamplesV2, record.FloatHistogramSamplesV2:
		encoder.EnableSTStorage = true
	}
	switch decoder.Type(rec) {
	case record.Samples, record.SamplesV2:
		var samples []record.RefSample
		samples, err = decoder.Samples(rec, nil)
		for i := range samples {
			changed = n.keep(&samples[i].Ref) || changed
		}
		if changed {
			rec = encoder.Samples(samples, nil)
		}
	case record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2:
		var samples, custom []record.RefHistogramSample
		samples, err = decoder.HistogramSamples(rec, nil)
		for i := range samples {
			changed = n.keep(&samples[i].Ref) || changed
		}
		if changed {
			rec, custom = encoder.HistogramSamples(samples, nil)
		}
		if len(custom) > 0 {
			records = append(records, encoder.CustomBucketsHistogramSamples(custom, nil))
		}
	case record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
		var samples, custom []record.RefFloatHistogramSample
		samples, err = decoder.FloatHistogramSamples(rec, nil)
		for i := range samples {
			changed = n.keep(&samples[i].Ref) || changed
		}
		if changed {
			rec, custom = encoder.FloatHistogramSamples(samples, nil)
		}
		if len(custom) > 0 {
			records = append(records, encoder.CustomBucketsFloatHistogramSamples(custom, nil))
		}
	case record.MmapMarkers:
		var markers []record.RefMmapMarker
		markers, err = decoder.MmapMarkers(rec, nil)
		left := slices.DeleteFunc(slices.Clone(markers), func(m record.RefMmapMarker) bool {
			_, several := n[m.Ref]
			return several
		})
		if changed = len(left) < len(markers); changed {
			rec = nil
		}
		if changed && len(left) > 0 {
			rec = encoder.MmapMarkers(left, nil)
		}
	}
	if len(rec) > 0 {
		records = append(records, rec)
	}
	return records, changed, err
}

// keep replaces a number with the number under which an opening keeps the series, and reports whether
// the two differ.
func (n numbers) keep(number *chunks.HeadSeriesRef) (changed bool) {
	kept, several := n[*number]
	if !several || kept == *number {
		return false
	}
	*number = kept
	return true
}
