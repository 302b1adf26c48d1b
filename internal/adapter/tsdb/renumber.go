package tsdb

import (
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

// A series that a compaction removed from memory gets a second number when it comes back. An opening
// that finds both numbers in the log keeps the series under the first one. But of the chunks into
// which tsdb moves late samples, it loads only those of the last number. At a marker in the log of
// late samples, which says that the samples before it are in a chunk, it still drops these samples.
// Late samples that were written under the first number are then lost:
// https://github.com/prometheus/prometheus/issues/19804.
//
// A second loss is rarer. The log of late samples may have the last number, and a checkpoint of the
// log may leave out the record of that number, because the series has the first one. If the process
// dies before it compacts the late samples, the next opening does not know their series:
// https://github.com/prometheus/prometheus/issues/19744.

// renumber gives the late samples of a closed database the numbers under which the next opening keeps
// their series. It also removes the markers of series with several numbers, so that the opening
// takes all their late samples from the log. Some of them may be in chunks, too: queries and
// compactions take each sample once.
//
// renumber replaces one segment at a time, by a rename. If the process dies, the next opening
// replaces the others.
func renumber(dir string, compress compression.Type) error {
	temporary := filepath.Join(dir, "wbl.new")
	if err := os.RemoveAll(temporary); err != nil { // left by a process that died
		return err
	}
	segments, err := filledSegments(filepath.Join(dir, "wbl"))
	if err != nil || len(segments) == 0 {
		return err
	}
	kept := keptNumbers(dir)
	if len(kept) == 0 {
		return nil
	}
	for _, path := range segments {
		changes := false
		if err := readSegment(path, func(rec []byte) error {
			_, changed, err := kept.change(rec)
			changes = changes || changed
			return err
		}); err != nil {
			return nil // tsdb's repair cuts the log here, and the database is opened again
		}
		if !changes {
			continue
		}
		err := kept.write(path, temporary, compress)
		if err := errors.Join(err, os.RemoveAll(temporary)); err != nil {
			return err
		}
	}
	return nil
}

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

// numbers has all numbers of the series with several numbers in the log, and for each the number
// under which an opening keeps the series.
type numbers map[chunks.HeadSeriesRef]chunks.HeadSeriesRef

// keptNumbers reads the log of a closed database up to the first damage. That takes a tenth of the
// time of an opening, and 100 bytes of memory for each series until it returns.
func keptNumbers(dir string) numbers {
	kept := numbers{}
	first := map[[sha256.Size]byte]chunks.HeadSeriesRef{} // by the hash of the labels
	decoder := record.NewDecoder(nil, slog.New(slog.DiscardHandler))
	var series []record.RefSeries
	var buf []byte
	eachRecord(func(rec []byte) (err error) {
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
	return kept
}

// largestSegment is more than a rewritten segment can have: tsdb begins a new one at 128 MiB, and other
// numbers make a sample 9 bytes longer at most.
const largestSegment = 1 << 30

// write replaces a segment. It needs a directory that does not exist.
func (n numbers) write(path, temporary string, compress compression.Type) error {
	log, err := wlog.NewSize(nil, nil, temporary, largestSegment, compress)
	if err != nil {
		return err
	}
	err = readSegment(path, func(rec []byte) error {
		records, _, err := n.change(rec)
		if err != nil {
			return err
		}
		return log.Log(records...)
	})
	if err == nil {
		err = log.Sync() // before the rename: the old segment may survive a power loss
	}
	if err := errors.Join(err, log.Close()); err != nil {
		return err
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

// keep replaces a number by the number under which an opening keeps the series, and reports whether
// that is another one.
func (n numbers) keep(number *chunks.HeadSeriesRef) (changed bool) {
	kept, several := n[*number]
	if !several || kept == *number {
		return false
	}
	*number = kept
	return true
}
