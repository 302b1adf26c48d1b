package blocks

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"

	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

const (
	indexFile = "index"
	chunksDir = "chunks"

	// unorderedDir has the chunks in the order of arrival, while they are copied into the order of the series.
	unorderedDir = "chunks.tmp"

	// spoolFile has the series until all are known: an index begins with all its symbols, and has the series in order.
	spoolFile = "series.tmp"
)

// Writer writes one block. Series may come in any order; if they do not come in the order of their labels, Close copies
// the chunks once more. It keeps the names and values of labels in memory, and 16 bytes for each series.
type Writer struct {
	dir     string
	meta    tsdb.BlockMeta
	chunks  *chunks.Writer
	spool   *os.File
	buf     *bufio.Writer
	at      int64     // bytes in the spool
	series  []spooled // in the order of arrival
	last    labels.Labels
	ordered bool // the series came in the order of their labels
	symbols map[string]struct{}
	scratch []byte
}

// spooled is the place of a series in the spool.
type spooled struct{ offset, size int64 }

// NewWriter makes the directory of a block with samples from `from`, before `to`. It must not exist yet.
func NewWriter(dir string, id ulid.ULID, from, to int64) (*Writer, error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return nil, err
	}
	spool, err := os.Create(filepath.Join(dir, spoolFile))
	if err != nil {
		return nil, err
	}
	data, err := chunks.NewWriter(filepath.Join(dir, chunksDir))
	if err != nil {
		return nil, errors.Join(err, spool.Close())
	}
	return &Writer{dir: dir, chunks: data, spool: spool, buf: bufio.NewWriterSize(spool, 1<<16), ordered: true,
		symbols: map[string]struct{}{}, meta: tsdb.BlockMeta{ULID: id, MinTime: from, MaxTime: to, Version: 1,
			Compaction: tsdb.BlockMetaCompaction{Level: 1, Sources: []ulid.ULID{id}}}}, nil
}

// Add adds the samples of a series that are in the time of the block. A series without any is left out. Add keeps
// neither the labels nor the chunks.
func (w *Writer) Add(ls labels.Labels, all []chunks.Meta) error {
	all, err := fit(all, w.meta.MinTime, w.meta.MaxTime-1)
	if err != nil {
		return fmt.Errorf("series %s: %w", ls, err)
	}
	if len(all) == 0 {
		return nil
	}
	if err := w.chunks.WriteChunks(all...); err != nil { // sets the references
		return err
	}
	for _, c := range all {
		w.meta.Stats.NumSamples += uint64(c.Chunk.NumSamples())
	}
	w.meta.Stats.NumChunks += uint64(len(all))
	w.meta.Stats.NumSeries++
	w.ordered = w.ordered && labels.Compare(w.last, ls) < 0
	if w.ordered {
		w.last = ls.Copy()
	}
	w.scratch = appendSeries(w.scratch[:0], ls, all)
	w.series = append(w.series, spooled{w.at, int64(len(w.scratch))})
	w.at += int64(len(w.scratch))
	ls.Range(func(l labels.Label) {
		for _, text := range []string{l.Name, l.Value} {
			if _, has := w.symbols[text]; !has {
				w.symbols[strings.Clone(text)] = struct{}{}
			}
		}
	})
	_, err = w.buf.Write(w.scratch)
	return err
}

// Close writes the index and the metadata, and syncs the files. A block without samples leaves no directory.
func (w *Writer) Close(ctx context.Context) (tsdb.BlockMeta, error) {
	if err := errors.Join(w.buf.Flush(), w.chunks.Close()); err != nil {
		return w.meta, errors.Join(err, w.spool.Close())
	}
	if len(w.series) == 0 {
		return w.meta, errors.Join(w.spool.Close(), os.RemoveAll(w.dir))
	}
	if err := errors.Join(w.finish(ctx), w.spool.Close()); err != nil {
		return w.meta, err
	}
	if err := os.Remove(w.spool.Name()); err != nil {
		return w.meta, err
	}
	if _, err := tombstones.WriteFile(slog.New(slog.DiscardHandler), w.dir, tombstones.NewMemTombstones()); err != nil {
		return w.meta, err
	}
	text, err := json.MarshalIndent(w.meta, "", "\t")
	if err != nil {
		return w.meta, err
	}
	return w.meta, writeSynced(filepath.Join(w.dir, MetaFile), text)
}

// Abandon removes a block that is not closed.
func (w *Writer) Abandon() error {
	return errors.Join(w.chunks.Close(), w.spool.Close(), os.RemoveAll(w.dir))
}

// finish writes the index. tsdb wants series in the order of their labels, and chunks in the order of their series.
func (w *Writer) finish(ctx context.Context) error {
	if w.ordered {
		return w.writeIndex(ctx, func([]chunks.Meta) error { return nil })
	}
	if err := w.sort(); err != nil {
		return err
	}
	ordered, unordered := filepath.Join(w.dir, chunksDir), filepath.Join(w.dir, unorderedDir)
	if err := os.Rename(ordered, unordered); err != nil {
		return err
	}
	from, err := chunks.NewDirReader(unordered, nil)
	if err != nil {
		return err
	}
	to, err := chunks.NewWriter(ordered)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	err = pagefault.Guard(func() error {
		return w.writeIndex(ctx, func(metas []chunks.Meta) (err error) {
			for i := range metas {
				if metas[i].Chunk, _, err = from.ChunkOrIterable(metas[i]); err != nil {
					return err
				}
			}
			return to.WriteChunks(metas...)
		})
	})
	return errors.Join(err, to.Close(), from.Close(), os.RemoveAll(unordered))
}

// sort brings the series into the order of their labels. It reads the labels from the spool, since a block may have
// more than memory holds.
func (w *Writer) sort() (err error) {
	labelsAt := func(s spooled) labels.Labels {
		ls, _, readErr := w.read(s, false)
		err = errors.Join(err, readErr)
		return ls
	}
	slices.SortStableFunc(w.series, func(a, b spooled) int { return labels.Compare(labelsAt(a), labelsAt(b)) })
	return err
}

// writeIndex calls `place` with the chunks of each series, in order, before the index refers to them.
func (w *Writer) writeIndex(ctx context.Context, place func([]chunks.Meta) error) error {
	out, err := index.NewWriter(ctx, filepath.Join(w.dir, indexFile))
	if err != nil {
		return err
	}
	err = w.fillIndex(ctx, out, place)
	return errors.Join(err, out.Close())
}

func (w *Writer) fillIndex(ctx context.Context, out *index.Writer, place func([]chunks.Meta) error) error {
	for _, symbol := range slices.Sorted(maps.Keys(w.symbols)) {
		if err := out.AddSymbol(symbol); err != nil {
			return err
		}
	}
	var before labels.Labels
	for i, s := range w.series {
		if err := ctx.Err(); err != nil {
			return err
		}
		ls, metas, err := w.read(s, true)
		if err != nil {
			return err
		}
		if i > 0 && labels.Equal(before, ls) {
			return fmt.Errorf("two series have the labels %s: an added label makes them the same", ls)
		}
		if err := place(metas); err != nil {
			return err
		}
		if err := out.AddSeries(storage.SeriesRef(i), ls, metas...); err != nil {
			return err
		}
		before = ls
	}
	return nil
}

// appendSeries appends a series as the spool has it.
func appendSeries(b []byte, ls labels.Labels, metas []chunks.Meta) []byte {
	b = binary.AppendUvarint(b, uint64(ls.Len()))
	ls.Range(func(l labels.Label) {
		for _, text := range []string{l.Name, l.Value} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
	})
	b = binary.AppendUvarint(b, uint64(len(metas)))
	for _, c := range metas {
		b = binary.AppendUvarint(b, uint64(c.Ref))
		b = binary.AppendVarint(b, c.MinTime)
		b = binary.AppendVarint(b, c.MaxTime)
	}
	return b
}

// read reads a series from the spool, and its chunks if it must.
func (w *Writer) read(s spooled, withChunks bool) (labels.Labels, []chunks.Meta, error) {
	w.scratch = slices.Grow(w.scratch[:0], int(s.size))[:s.size]
	if _, err := w.spool.ReadAt(w.scratch, s.offset); err != nil {
		return labels.EmptyLabels(), nil, err
	}
	b := w.scratch
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	text := func() string {
		n := number()
		t := string(b[:n])
		b = b[n:]
		return t
	}
	signed := func() int64 {
		v, n := binary.Varint(b)
		b = b[n:]
		return v
	}
	var of labels.ScratchBuilder
	for range number() {
		of.Add(text(), text())
	}
	if !withChunks {
		return of.Labels(), nil, nil
	}
	metas := make([]chunks.Meta, number())
	for i := range metas {
		metas[i] = chunks.Meta{Ref: chunks.ChunkRef(number()), MinTime: signed(), MaxTime: signed()}
	}
	return of.Labels(), metas, nil
}

func writeSynced(path string, text []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
