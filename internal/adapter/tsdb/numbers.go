package tsdb

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tombstones"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// tsdb gives each new series the next number. After an opening, it continues behind the highest number
// in its log. The chunk files and the log of out-of-order samples may have higher numbers. Those
// numbers belong to series that the log has lost in a power loss, or dropped after a compaction. A new
// series must not get such a number: at the next opening, it would also get the samples of the old
// series.

// lateFiles is the contents of a closed database's log of late samples and of its chunk files.
type lateFiles struct {
	highest chunks.HeadSeriesRef          // highest number of a series in these files
	markers map[record.RefMmapMarker]bool // in the log
	there   map[record.RefMmapMarker]bool // markers whose chunk is in a file
	logged  int                           // samples in the log
	several bool                          // a series in the log has several numbers, or lacks a chunk: see renumber
	chunked int                           // late samples in chunk files
}

// readLate reads the files up to the first damage. It removes the chunk files that the opening would
// remove: the first damaged file and the files behind it, or all files if chunks are out of
// sequence. Otherwise the opening would write other chunks at the positions that the markers name.
func readLate(dir string) (l lateFiles, err error) {
	l.markers, l.there = map[record.RefMmapMarker]bool{}, map[record.RefMmapMarker]bool{}
	if err := l.readLog(dir); err != nil {
		return l, err
	}
	return l, l.readChunks(dir)
}

// readLog reads the log of late samples. A marker without a position belongs to the first chunk of a
// series, or to its first chunk after the beginning of a compaction. If the log still has samples
// before such a marker, the compaction did not end, and nothing shows whether the marker's chunk is in
// a file.
func (l *lateFiles) readLog(dir string) error {
	decoder := record.NewDecoder(nil, slog.New(slog.DiscardHandler))
	var samples []record.RefSample
	var histograms []record.RefHistogramSample
	var floats []record.RefFloatHistogramSample
	var markers []record.RefMmapMarker
	seen := map[chunks.HeadSeriesRef]bool{} // series with samples
	return eachRecord(func(rec []byte) (err error) {
		switch decoder.Type(rec) {
		case record.Samples, record.SamplesV2:
			samples, err = decoder.Samples(rec, samples[:0])
			for _, s := range samples {
				l.highest, seen[s.Ref] = max(l.highest, s.Ref), true
			}
			l.logged += len(samples)
		case record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2:
			histograms, err = decoder.HistogramSamples(rec, histograms[:0])
			for _, s := range histograms {
				l.highest, seen[s.Ref] = max(l.highest, s.Ref), true
			}
			l.logged += len(histograms)
		case record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
			floats, err = decoder.FloatHistogramSamples(rec, floats[:0])
			for _, s := range floats {
				l.highest, seen[s.Ref] = max(l.highest, s.Ref), true
			}
			l.logged += len(floats)
		case record.MmapMarkers:
			markers, err = decoder.MmapMarkers(rec, markers[:0])
			for _, m := range markers {
				l.highest = max(l.highest, m.Ref)
				if m.MmapRef != 0 || seen[m.Ref] {
					l.markers[m] = true
				}
			}
		}
		return err
	}, wlog.SegmentRange{Dir: filepath.Join(dir, "wbl"), First: -1, Last: -1})
}

func (l *lateFiles) readChunks(dir string) error {
	path := filepath.Join(dir, "chunks_head")
	if _, err := os.Stat(path); err != nil {
		return environment(err)
	}
	files, err := chunks.NewChunkDiskMapper(nil, path, nil, chunks.MinWriteBufferSize, 0)
	if err != nil {
		return environment(err) // tsdb reports other errors
	}
	defer files.Close()
	err = l.eachChunk(files)
	if _, damaged := errors.AsType[*chunks.CorruptionErr](err); damaged {
		if err := files.DeleteCorrupted(err); err != nil {
			return err
		}
		err = l.eachChunk(files)
	}
	if errors.Is(err, errSequence) {
		clear(l.there)
		l.chunked = 0
		return removeChunks(dir)
	}
	return err
}

// errSequence says that chunks are not in the order of time. tsdb then removes the chunks of all series.
var errSequence = errors.New("chunks are out of sequence")

func (l *lateFiles) eachChunk(files *chunks.ChunkDiskMapper) error {
	clear(l.there)
	l.chunked = 0
	ends := map[chunks.HeadSeriesRef]int64{}
	return files.IterateAllChunks(func(ref chunks.HeadSeriesRef, at chunks.ChunkDiskMapperRef, mint, maxt int64,
		samples uint16, _ chunkenc.Encoding, late bool) error {
		l.highest = max(l.highest, ref)
		switch m := (record.RefMmapMarker{Ref: ref, MmapRef: at}); {
		case late:
			l.chunked += int(samples)
			if l.markers[m] {
				l.there[m] = true
			}
		case len(l.markers) > 0:
			if end, known := ends[ref]; known && mint <= end {
				return errSequence
			}
			ends[ref] = maxt
		}
		return nil
	})
}

// oldChunks is a directory of chunk files that are being removed.
const oldChunks = "chunks_head.old"

// removeChunks removes all chunk files of a closed database. The logs have all samples that are in no
// block. removeChunks first renames the directory, because tsdb cannot open a directory that lacks
// some of its files.
func removeChunks(dir string) error {
	old := filepath.Join(dir, oldChunks)
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	err := os.Rename(filepath.Join(dir, "chunks_head"), old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(old)
}

// givesAgain reports whether an open database, to which nothing was written yet, would give the number
// `used`, or a lower one, to a new series. `read` are the parts of the log that the opening has read.
func givesAgain(read []wlog.SegmentRange, head *tsdb.Head, used chunks.HeadSeriesRef) (bool, error) {
	if used == 0 || used <= headNumber(head) {
		return false, nil
	}
	logged, err := logNumber(read)
	return used > logged, err
}

// headNumber returns the highest number in the head. The log may have a higher one.
func headNumber(head *tsdb.Head) (highest chunks.HeadSeriesRef) {
	reader, err := head.Index()
	if err != nil {
		return 0
	}
	defer reader.Close()
	name, val := index.AllPostingsKey()
	all, err := reader.Postings(context.Background(), name, val)
	if err != nil {
		return 0
	}
	for all.Next() {
		highest = max(highest, chunks.HeadSeriesRef(all.At()))
	}
	return highest
}

// logNumber returns the highest number that tsdb finds in these parts of its log; 0 for none.
func logNumber(ranges []wlog.SegmentRange) (highest chunks.HeadSeriesRef, err error) {
	decoder := record.NewDecoder(nil, slog.New(slog.DiscardHandler))
	err = eachRecord(func(rec []byte) error {
		series, stones, err := numbersIn(&decoder, rec)
		for _, s := range series {
			highest = max(highest, s.Ref)
		}
		for _, s := range stones {
			highest = max(highest, chunks.HeadSeriesRef(s.Ref))
		}
		return err
	}, ranges...)
	return highest, err
}

// numbersIn returns the series and the deletions of a record.
func numbersIn(decoder *record.Decoder, rec []byte) (series []record.RefSeries, stones []tombstones.Stone, err error) {
	switch decoder.Type(rec) {
	case record.Series:
		series, err = decoder.Series(rec, nil)
	case record.Tombstones:
		stones, err = decoder.Tombstones(rec, nil)
	}
	return series, stones, err
}

// walRanges returns the segments of the log that an opening of a closed database reads.
func walRanges(dir string) []wlog.SegmentRange {
	wal := filepath.Join(dir, "wal")
	if checkpoint, last, err := wlog.LastCheckpoint(wal); err == nil {
		return []wlog.SegmentRange{{Dir: checkpoint, First: -1, Last: -1}, {Dir: wal, First: last + 1, Last: -1}}
	}
	return []wlog.SegmentRange{{Dir: wal, First: -1, Last: -1}}
}

// eachRecord calls fn with each record of a log up to the first damage.
func eachRecord(fn func(rec []byte) error, ranges ...wlog.SegmentRange) error {
	segments, err := wlog.NewSegmentsRangeReader(ranges...)
	if err != nil {
		return environment(err)
	}
	defer segments.Close()
	r := wlog.NewReader(segments)
	for r.Next() {
		if fn(r.Record()) != nil {
			return nil
		}
	}
	return environment(r.Err())
}

// reserve makes sure that the next openings of a closed database give new series only numbers above
// `number`. For that, it appends to the log a deletion of a series with this number, though there is no
// such series.
func reserve(dir string, number chunks.HeadSeriesRef) error {
	log, err := wlog.New(nil, nil, filepath.Join(dir, "wal"), compression.None)
	if err != nil {
		return err
	}
	var encoder record.Encoder
	stone := tombstones.Stone{
		Ref:       storage.SeriesRef(number),
		Intervals: tombstones.Intervals{{Mint: math.MinInt64, Maxt: math.MaxInt64}},
	}
	err = log.Log(encoder.Tombstones([]tombstones.Stone{stone}, nil))
	return errors.Join(err, log.Close()) // Close syncs the log
}
