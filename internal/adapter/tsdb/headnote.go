package tsdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/tsdb/chunks"
)

// headNote says what a saved head needs of the other files of its store: see findHead. A file in the store's directory
// holds it, in the layout of docs/format/databases.md.
type headNote struct {
	segment int // an opening reads the log from this segment on
	offset  int // and from this offset in it

	// No series had a number above `before` when the save began, and above `highest` when it ended.
	before, highest chunks.HeadSeriesRef

	log    logEnd // the end of the log when the save ended
	chunks logEnd // the same of the files with chunks; its checkpoint is -1
	bytes  int64  // of the files of the saved head
	sum    uint32 // checksum of these files, one after the other
}

const (
	headNoteFile    = "head.note"
	headNoteMagic   = "FRSHHEAD"
	headNoteVersion = 2
)

var errHeadNote = errors.New("it is malformed")

// append appends the contents of the file to b.
func (n *headNote) append(b []byte) []byte {
	from := len(b)
	b = append(append(b, headNoteMagic...), headNoteVersion)
	for _, x := range []uint64{
		uint64(n.segment), uint64(n.offset), uint64(n.before), uint64(n.highest), uint64(n.bytes),
	} {
		b = binary.AppendUvarint(b, x)
	}
	b = n.chunks.append(n.log.append(b))
	b = binary.LittleEndian.AppendUint32(b, n.sum)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// parse reads the bytes of the file. Each value has only one valid encoding.
func (n *headNote) parse(b []byte) error {
	body := len(b) - 4
	if body < 0 || binary.LittleEndian.Uint32(b[body:]) != crc32.Checksum(b[:body], castagnoli) {
		return errHeadNote
	}
	b, ok := bytes.CutPrefix(b[:body], []byte(headNoteMagic))
	if !ok || len(b) == 0 {
		return errHeadNote
	}
	if b[0] != headNoteVersion {
		return fmt.Errorf("it has version %d, and this program reads %d", b[0], headNoteVersion)
	}
	d := endsDecoder{b: b[1:]}
	got := headNote{
		segment: int(d.number(math.MaxInt32)), offset: int(d.number(math.MaxInt32)),
		before: chunks.HeadSeriesRef(d.number(math.MaxUint64)), highest: chunks.HeadSeriesRef(d.number(math.MaxUint64)),
		bytes: int64(d.number(math.MaxInt64)),
		log:   d.logEnd(), chunks: d.logEnd(),
		sum: binary.LittleEndian.Uint32(d.bytes(4)),
	}
	if d.bad || len(d.b) > 0 {
		return errHeadNote
	}
	*n = got
	return nil
}

// readHeadNote reads the note of a store. `found` is false if the store has none.
func readHeadNote(dir string) (n headNote, found bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, headNoteFile))
	if errors.Is(err, fs.ErrNotExist) {
		return n, false, nil
	}
	if err == nil {
		err = n.parse(b)
	}
	if err != nil {
		return n, false, fmt.Errorf("read %s: %w", filepath.Join(dir, headNoteFile), err)
	}
	return n, true, nil
}

// write puts the file into place, so that it survives a power loss.
func (n *headNote) write(dir string, fsync func(path string) error) error {
	return putFile(dir, headNoteFile, headNoteFile+".tmp", n.append(nil), fsync)
}
