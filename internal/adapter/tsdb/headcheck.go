package tsdb

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// headChunksDir has the chunks of the head that no longer change, in files with numbers. tsdb begins a file when the
// one before is full, and removes files whose chunks are in blocks.
const headChunksDir = "chunks_head"

// headFiles returns the paths of the files with chunks of the head, the oldest first.
func headFiles(dir string) (paths []string) {
	entries, _ := os.ReadDir(filepath.Join(dir, headChunksDir)) // the opening reports an error
	for _, e := range entries {
		if _, ok := segment(e.Name()); ok {
			paths = append(paths, filepath.Join(dir, headChunksDir, e.Name()))
		}
	}
	slices.Sort(paths)
	return paths
}

const (
	headFileHeader  = 8
	headChunkHeader = 8 + 8 + 8 + 1 // the series, the first and the last time, and the encoding
	maxLengthBytes  = 5
	mostChunkBytes  = 128 << 20 // no file is larger
)

var errHeadChunk = errors.New("a chunk of the head does not have its checksum")

// checkHeadFile reads a file with chunks of the head, and returns a *damageError if it has damage. tsdb may be
// writing to the last file. There, damage counts only if other chunks follow: a chunk at the end may lack its rest.
func checkHeadFile(path string, last bool) error {
	text, err := os.ReadFile(path) // at most 128 MiB
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a compaction has removed it
	}
	if err != nil {
		return err
	}
	for at := headFileHeader; at < len(text); {
		rest := text[at:]
		if zeros(rest[:min(len(rest), headChunkHeader)]) {
			return nil // tsdb allocates files before it fills them
		}
		end := headChunkEnd(rest)
		if end > 0 && crc32.Checksum(rest[:end-4], castagnoli) == binary.BigEndian.Uint32(rest[end-4:]) {
			at += end
			continue
		}
		if last && (end == 0 || zeros(rest[end:])) {
			return nil
		}
		return &damageError{path, int64(at), errHeadChunk}
	}
	return nil
}

// headChunkEnd returns where the chunk at the beginning of `rest` ends, 0 if it is not whole.
func headChunkEnd(rest []byte) int {
	if len(rest) < headChunkHeader+maxLengthBytes {
		return 0
	}
	data, n := binary.Uvarint(rest[headChunkHeader : headChunkHeader+maxLengthBytes])
	if n <= 0 || data > uint64(len(rest)) {
		return 0
	}
	if end := headChunkHeader + n + int(data) + 4; end <= len(rest) {
		return end
	}
	return 0
}

// endOfChunks returns where the last chunk in a file ends. It reads no chunk, only their lengths.
func endOfChunks(path string) (end int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	if _, err := r.Discard(headFileHeader); err != nil {
		return 0, err
	}
	for end = headFileHeader; ; {
		head, err := r.Peek(headChunkHeader + maxLengthBytes)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if len(head) < headChunkHeader+maxLengthBytes || zeros(head[:headChunkHeader]) {
			return end, nil
		}
		data, n := binary.Uvarint(head[headChunkHeader:])
		size := headChunkHeader + n + int(data) + 4
		if n <= 0 || data > mostChunkBytes {
			return 0, &damageError{path, end, errHeadChunk}
		}
		if _, err := r.Discard(size); err != nil {
			return 0, err
		}
		end += int64(size)
	}
}

func zeros(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
