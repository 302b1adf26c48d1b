package tsdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// ends has the positions where the logs of a raw store ended at its last sync: see CutBack. A file in
// the store's directory holds these positions, in the layout of docs/format/databases.md.
type ends struct {
	boot     string // name of the machine's boot at the sync; empty if unknown
	requests uint64 // the logs have the tenant's first requests, up to this number
	wal, wbl logEnd
}

// logEnd is the end of a log: the position behind its last byte.
type logEnd struct {
	checkpoint int    // number of the log's newest checkpoint; -1 for none
	segment    int    // number of the segment with the last byte; -1 if no segment has a byte
	size       int64  // of this segment
	tail       uint32 // checksum of the segment's last bytes, which shows whether the segment was rewritten
}

// keptEnds is what a raw store of a group needs to save the ends of its logs.
type keptEnds struct {
	kept     bool // false outside of a group
	old      bool // the saved ends are of another boot, and the logs have nothing behind them
	boot     string
	requests atomic.Uint64 // the logs have the tenant's first requests, up to this number
	saving   sync.Mutex    // held while the ends are saved
	opening  sync.Mutex    // held while an opening may replace files of the logs
}

// has is called when the logs have the first `requests` requests of the tenant. It ignores smaller
// numbers, as in a replay.
func (k *keptEnds) has(requests uint64) {
	if requests > k.requests.Load() {
		k.requests.Store(requests)
	}
}

const (
	endsFile    = "ends"
	endsMagic   = "FRSHENDS"
	endsVersion = 1

	maxBoot = 255 // bytes; the name of a boot has 36

	tailBytes = 4 << 10 // bytes of a segment's end that its checksum covers
)

var (
	errEnds    = errors.New("it is malformed")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// append appends the contents of the file to b.
func (e *ends) append(b []byte) []byte {
	from := len(b)
	b = append(append(b, endsMagic...), endsVersion)
	b = append(binary.AppendUvarint(b, uint64(len(e.boot))), e.boot...)
	b = binary.AppendUvarint(b, e.requests)
	b = e.wbl.append(e.wal.append(b))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

func (e logEnd) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(e.checkpoint+1))
	b = binary.AppendUvarint(b, uint64(e.segment+1))
	b = binary.AppendUvarint(b, uint64(e.size))
	return binary.LittleEndian.AppendUint32(b, e.tail)
}

// parse reads the bytes of the file. Each value has only one valid encoding.
func (e *ends) parse(b []byte) error {
	body := len(b) - 4
	if body < 0 || binary.LittleEndian.Uint32(b[body:]) != crc32.Checksum(b[:body], castagnoli) {
		return errEnds
	}
	b, ok := bytes.CutPrefix(b[:body], []byte(endsMagic))
	if !ok || len(b) == 0 {
		return errEnds
	}
	if b[0] != endsVersion {
		return fmt.Errorf("it has version %d, and this program reads %d", b[0], endsVersion)
	}
	d := endsDecoder{b: b[1:]}
	boot := d.bytes(int(d.number(maxBoot)))
	got := ends{boot: string(boot), requests: d.number(math.MaxUint64), wal: d.logEnd(), wbl: d.logEnd()}
	if d.bad || len(d.b) > 0 {
		return errEnds
	}
	*e = got
	return nil
}

// endsDecoder takes fields from the front of b. After a malformed field, bad is set and all further
// fields are zero.
type endsDecoder struct {
	b   []byte
	bad bool
}

// number takes a uvarint in its shortest form.
func (d *endsDecoder) number(most uint64) uint64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 || x > most {
		*d = endsDecoder{bad: true}
		return 0
	}
	d.b = d.b[n:]
	return x
}

func (d *endsDecoder) bytes(n int) []byte {
	if len(d.b) < n {
		*d = endsDecoder{bad: true}
		return make([]byte, n)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *endsDecoder) logEnd() logEnd {
	return logEnd{
		checkpoint: int(d.number(math.MaxInt32)) - 1, segment: int(d.number(math.MaxInt32)) - 1,
		size: int64(d.number(math.MaxInt64)), tail: binary.LittleEndian.Uint32(d.bytes(4)),
	}
}

// readEnds reads the saved ends of a store. `found` is false if the store has no such file.
func readEnds(dir string) (e ends, found bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, endsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return e, false, nil
	}
	if err == nil {
		err = e.parse(b)
	}
	if err != nil {
		return e, false, fmt.Errorf("read %s: %w", filepath.Join(dir, endsFile), err)
	}
	return e, true, nil
}

// write puts the file into place, so that it survives a power loss.
func (e *ends) write(dir string, fsync func(path string) error) error {
	return putFile(dir, endsFile, endsFile+".tmp", e.append(nil), fsync)
}

// putFile replaces a file as a whole. It writes `temp` first, which a killed process may leave behind.
func putFile(dir, name, temp string, b []byte, fsync func(path string) error) error {
	temp = filepath.Join(dir, temp)
	if err := os.WriteFile(temp, b, 0o640); err != nil {
		return err
	}
	if err := fsync(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return fsync(dir)
}

// endsNow returns where the logs of a store end. Nothing may write to them meanwhile.
func endsNow(dir string) (e ends, err error) {
	if e.wal, err = endOf(filepath.Join(dir, "wal")); err != nil {
		return e, err
	}
	e.wbl, err = endOf(filepath.Join(dir, "wbl"))
	return e, err
}

// endOf returns where a log ends.
func endOf(log string) (logEnd, error) {
	all, err := segmentsOf(log)
	e := logEnd{checkpoint: all.checkpoint, segment: -1}
	for _, n := range slices.Backward(all.numbers) {
		info, failed := os.Stat(segmentPath(log, n))
		if failed != nil {
			return e, failed
		}
		if info.Size() > 0 {
			e.segment, e.size = n, info.Size()
			e.tail, err = tailOf(segmentPath(log, n), e.size)
			break
		}
	}
	return e, err
}

// tailOf returns the checksum of the last bytes of a file in front of an offset.
func tailOf(path string, offset int64) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, min(offset, tailBytes))
	if _, err := f.ReadAt(b, offset-int64(len(b))); err != nil {
		return 0, err
	}
	return crc32.Checksum(b, castagnoli), nil
}

// fits reports whether the log still has this end, or has since dropped the segments up to it. If
// the log was repaired or replaced, the bytes behind the end are unknown, and fits returns false.
func (e logEnd) fits(log string) (bool, error) {
	all, err := segmentsOf(log)
	switch {
	case err != nil:
		return false, err
	case all.checkpoint != e.checkpoint && all.checkpoint >= e.segment:
		return false, nil // the checkpoint has records from behind the end
	case e.segment < 0, len(all.numbers) == 0, all.numbers[0] > e.segment:
		return true, nil
	}
	tail, err := tailOf(segmentPath(log, e.segment), e.size)
	if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return tail == e.tail, err
}

// behind returns how many bytes a log has after the end, without the zeros that pad its last page.
func (e logEnd) behind(log string) (n int64, err error) {
	all, err := segmentsOf(log)
	for _, number := range all.numbers {
		path := segmentPath(log, number)
		info, failed := os.Stat(path)
		switch {
		case failed != nil:
			err = errors.Join(err, failed)
		case number > e.segment:
			n += info.Size()
		case number == e.segment:
			n += max(0, written(path, info.Size())-e.size)
		}
	}
	return n, err
}

// gapBehind reports whether a segment behind the end is missing although a later segment exists. tsdb
// does not open such a log. A power loss during a cut leaves such a gap if it undoes some of the cut's
// removals.
func (e logEnd) gapBehind(log string) bool {
	all, _ := segmentsOf(log) // the method behind returns the error
	for i, number := range all.numbers {
		if i > 0 && number > e.segment && all.numbers[i-1] < number-1 {
			return true
		}
	}
	return false
}

// cut removes everything behind the end. The first segment of a log stays, though it may become empty:
// tsdb does not open a log whose segments do not begin behind its checkpoint.
func (e logEnd) cut(log string, fsync func(path string) error) error {
	all, err := segmentsOf(log)
	if err != nil {
		return err
	}
	for i, number := range slices.Backward(all.numbers) { // so that a crash leaves no gap
		path := segmentPath(log, number)
		switch {
		case number < e.segment:
		case number > e.segment && i > 0:
			err = os.Remove(path)
		case number > e.segment:
			err = shorten(path, 0, fsync)
		default:
			err = shorten(path, e.size, fsync)
		}
		if err != nil {
			return err
		}
	}
	if err := fsync(log); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// shorten cuts a file to at most `size` bytes.
func shorten(path string, size int64, fsync func(path string) error) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= size {
		return err
	}
	if err := os.Truncate(path, size); err != nil {
		return err
	}
	return fsync(path)
}
