package blocks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"

	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// Damage returns the error of reading a block, or of a server that refused it, with the file of the block that is
// damaged, and what to do: tsdb's own errors, such as "invalid checksum", name none. It reads the whole block. It
// returns err itself if that comes from elsewhere.
func (b Block) Damage(ctx context.Context, err error) error {
	if err == nil || ofSystem(err) {
		return err
	}
	file := ""
	cause := pagefault.Guard(func() error { return b.check(ctx, func(name string) { file = name }) })
	if cause == nil || ofSystem(cause) || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("its file %s is damaged: %w; put a whole copy of the block in its place, such as that of a backup, "+
		"and run the command again", file, cause)
}

// ofSystem reports whether an error is one of the system, such as that of a file without rights. It names the file. An
// empty file is damage: the system refuses to map it, and names none.
func ofSystem(err error) bool {
	cause, is := errors.AsType[syscall.Errno](err)
	return is && cause != syscall.EINVAL
}

// check reads all of a block that has a checksum, and more. It calls `reads` with the name of each file before it reads
// from that.
func (b Block) check(ctx context.Context, reads func(file string)) error {
	reads(tombstones.TombstonesFilename)
	if _, _, err := tombstones.ReadTombstones(b.Dir); err != nil {
		return err
	}
	reads(chunksDir)
	data, err := b.chunkFiles(reads)
	if err != nil {
		return err
	}
	defer data.Close()
	reads(indexFile)
	idx, err := index.NewFileReader(filepath.Join(b.Dir, indexFile), index.DecodePostingsRaw)
	if err != nil {
		return err
	}
	defer idx.Close()
	if err := checkLabels(ctx, idx); err != nil {
		return err
	}
	name, value := index.AllPostingsKey()
	series, err := idx.Postings(ctx, name, value)
	if err != nil {
		return err
	}
	var of labels.ScratchBuilder
	var metas []chunks.Meta
	for series.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		reads(indexFile)
		if err := idx.Series(series.At(), &of, &metas); err != nil {
			return err
		}
		for _, m := range metas {
			segment, _ := chunks.BlockChunkRef(m.Ref).Unpack()
			reads(chunkFile(segment))
			if _, _, err := data.ChunkOrIterable(m); err != nil {
				return fmt.Errorf("series %s: %w", of.Labels(), err)
			}
		}
	}
	reads(indexFile)
	return series.Err()
}

// chunkFile returns the name of a file with chunks: the first one is 000001.
func chunkFile(segment int) string { return fmt.Sprintf("%s/%06d", chunksDir, segment+1) }

// chunkFiles opens the files with chunks. tsdb's error of a file that is none names no file, so this looks itself.
func (b Block) chunkFiles(reads func(file string)) (*chunks.Reader, error) {
	entries, err := os.ReadDir(filepath.Join(b.Dir, chunksDir))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := chunksDir + "/" + e.Name()
		if !IsFile(name) {
			continue
		}
		reads(name)
		if err := beginsAsChunks(filepath.Join(b.Dir, name)); err != nil {
			return nil, err
		}
	}
	reads(chunksDir)
	return chunks.NewDirReader(filepath.Join(b.Dir, chunksDir), nil)
}

func beginsAsChunks(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, chunks.SegmentHeaderSize)
	if _, err := io.ReadFull(f, head); ofSystem(err) {
		return err
	} else if err != nil || binary.BigEndian.Uint32(head) != chunks.MagicChunks {
		return errors.New("it does not begin as a file with chunks does")
	}
	return nil
}

// checkLabels reads the lists of series of all labels. Each has a checksum.
func checkLabels(ctx context.Context, idx *index.Reader) error {
	names, err := idx.LabelNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		values, err := idx.LabelValues(ctx, name, nil)
		if err != nil {
			return fmt.Errorf("label %s: %w", name, err)
		}
		for _, value := range values {
			if _, err := idx.Postings(ctx, name, value); err != nil {
				return fmt.Errorf("label %s: %w", name, err)
			}
		}
	}
	return nil
}
