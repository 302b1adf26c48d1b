package tsdb

import (
	"context"
	"errors"
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

// tsdb numbers series in the order in which they come. After an opening it goes on behind the highest
// number that its log has. The chunk files and the log of out-of-order samples may have higher
// numbers, of series that the log has lost in a power loss, or forgotten when they were compacted. A
// new series must not get such a number: at the next opening it would also get the samples.

// usedNumber returns the highest number in the chunk files and in the log of out-of-order samples of
// a closed database, 0 for none. It leaves out what cannot be read, as tsdb does.
func usedNumber(dir string) chunks.HeadSeriesRef {
	highest := chunkNumber(filepath.Join(dir, "chunks_head"))
	decoder := record.NewDecoder(nil, slog.New(slog.DiscardHandler))
	var samples []record.RefSample
	var histograms []record.RefHistogramSample
	var floats []record.RefFloatHistogramSample
	var markers []record.RefMmapMarker
	eachRecord(func(rec []byte) (err error) {
		switch decoder.Type(rec) {
		case record.Samples, record.SamplesV2:
			samples, err = decoder.Samples(rec, samples[:0])
			for _, s := range samples {
				highest = max(highest, s.Ref)
			}
		case record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2:
			histograms, err = decoder.HistogramSamples(rec, histograms[:0])
			for _, s := range histograms {
				highest = max(highest, s.Ref)
			}
		case record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
			floats, err = decoder.FloatHistogramSamples(rec, floats[:0])
			for _, s := range floats {
				highest = max(highest, s.Ref)
			}
		case record.MmapMarkers:
			markers, err = decoder.MmapMarkers(rec, markers[:0])
			for _, m := range markers {
				highest = max(highest, m.Ref)
			}
		}
		return err
	}, wlog.SegmentRange{Dir: filepath.Join(dir, "wbl"), First: -1, Last: -1})
	return highest
}

// chunkNumber returns the highest number in the chunk files of a closed database, 0 for none.
func chunkNumber(dir string) (highest chunks.HeadSeriesRef) {
	if _, err := os.Stat(dir); err != nil {
		return 0
	}
	files, err := chunks.NewChunkDiskMapper(nil, dir, nil, chunks.MinWriteBufferSize, 0)
	if err != nil {
		return 0 // tsdb reports the error
	}
	defer files.Close()
	_ = files.IterateAllChunks(func(ref chunks.HeadSeriesRef, _ chunks.ChunkDiskMapperRef, _, _ int64, _ uint16,
		_ chunkenc.Encoding, _ bool) error {
		highest = max(highest, ref)
		return nil
	}) // tsdb removes the chunks behind an error
	return highest
}

// givesAgain reports whether an open database, to which nothing was written yet, would give a new
// series the number used, or a lower one.
func givesAgain(dir string, head *tsdb.Head, used chunks.HeadSeriesRef) bool {
	return used > 0 && used > headNumber(head) && used > logNumber(dir)
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

// logNumber returns the highest number that tsdb finds in its log, 0 for none.
func logNumber(dir string) (highest chunks.HeadSeriesRef) {
	decoder := record.NewDecoder(nil, slog.New(slog.DiscardHandler))
	var series []record.RefSeries
	var stones []tombstones.Stone
	eachRecord(func(rec []byte) (err error) {
		switch decoder.Type(rec) {
		case record.Series:
			series, err = decoder.Series(rec, series[:0])
			for _, s := range series {
				highest = max(highest, s.Ref)
			}
		case record.Tombstones:
			stones, err = decoder.Tombstones(rec, stones[:0])
			for _, s := range stones {
				highest = max(highest, chunks.HeadSeriesRef(s.Ref))
			}
		}
		return err
	}, walRanges(dir)...)
	return highest
}

// walRanges returns what an opening of a closed database reads of its log.
func walRanges(dir string) []wlog.SegmentRange {
	wal := filepath.Join(dir, "wal")
	if checkpoint, last, err := wlog.LastCheckpoint(wal); err == nil {
		return []wlog.SegmentRange{{Dir: checkpoint, First: -1, Last: -1}, {Dir: wal, First: last + 1, Last: -1}}
	}
	return []wlog.SegmentRange{{Dir: wal, First: -1, Last: -1}}
}

// eachRecord calls fn with the records of a log up to the first damage.
func eachRecord(fn func(rec []byte) error, ranges ...wlog.SegmentRange) {
	segments, err := wlog.NewSegmentsRangeReader(ranges...)
	if err != nil {
		return
	}
	defer segments.Close()
	for r := wlog.NewReader(segments); r.Next(); {
		if fn(r.Record()) != nil {
			return
		}
	}
}

// reserve makes the next openings of a closed database give higher numbers to new series. For that it
// adds a deletion of the series with this number, which does not exist, to the log.
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
	return errors.Join(err, log.Close()) // the close syncs it
}
