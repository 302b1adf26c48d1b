package tsdb

import (
	"bufio"
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// headParts are parts of a head that tsdb does not export. tsdb can save a head only while it closes: a running head
// keeps up to 64 KiB of chunks in memory, and tsdb reads a log from the middle of a segment only if a page begins
// there. So before a running head is saved, the log begins a segment, and behind that the chunks are written.
type headParts struct {
	log         *wlog.WL
	chunkLock   *sync.Mutex    // guards chunkWriter
	chunkWriter **bufio.Writer // nil until the first chunk
}

// partsOf returns the parts of a head, or an error if the version of tsdb has other parts.
func partsOf(head *tsdb.Head) (p headParts, err error) {
	log, err := part[*wlog.WL](head, "wal")
	if err != nil {
		return p, err
	}
	files, err := part[*chunks.ChunkDiskMapper](head, "chunkDiskMapper")
	if err != nil {
		return p, err
	}
	p.log = *log
	if p.chunkLock, err = part[sync.Mutex](*files, "writePathMtx"); err != nil {
		return p, err
	}
	p.chunkWriter, err = part[*bufio.Writer](*files, "chkWriter")
	return p, err
}

// counter is a number that goroutines share.
type counter interface {
	Load() uint64
	Store(uint64)
}

// lastNumber returns the number that a head gave to its last series. Only an opening may change it.
func lastNumber(head *tsdb.Head) (counter, error) {
	const name = "lastSeriesID"
	field := reflect.ValueOf(head).Elem().FieldByName(name)
	if field.IsValid() {
		if c, ok := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Interface().(counter); ok {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%T has no counter %s", head, name)
}

// part returns a field of a struct.
func part[T any](of any, name string) (*T, error) {
	field := reflect.ValueOf(of).Elem().FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		return nil, fmt.Errorf("%T has no field %s of type %v", of, name, reflect.TypeFor[T]())
	}
	return (*T)(unsafe.Pointer(field.UnsafeAddr())), nil
}

// flushChunks writes all chunks that the head does not keep in memory.
func (p *headParts) flushChunks() error {
	p.chunkLock.Lock()
	defer p.chunkLock.Unlock()
	if *p.chunkWriter == nil {
		return nil
	}
	return (*p.chunkWriter).Flush()
}
