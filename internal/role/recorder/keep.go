package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/freshet-io/freshet/internal/core/record"
)

// patience is how long the disk may take to write a record, or to report on the stores.
// Writing the usual 1 to 5 MB takes some milliseconds.
const patience = 5 * time.Second

// unkept is a record that could not be written to the disk. The last such record stays in memory
// until another record is made, because a server with a full disk needs a diagnosis.
type unkept struct {
	record.Record
	text []byte
	why  string
}

var errStillWriting = errors.New("the disk is still writing an earlier record")

// keep writes a record, and waits for the disk at most as long as `patience`. While a write hangs,
// no other records are written.
func (r *Recorder) keep(id string, text []byte) error {
	err, answered := within(r.patience, r.writing, func() error { return r.write(id, text) })
	switch answered {
	case busy:
		return errStillWriting
	case late:
		return fmt.Errorf("the disk did not store the record within %v", r.patience)
	}
	return err
}

var errStillLooking = errors.New("an earlier check of the stores still waits for the disk")

// broken returns the broken stores as JSON. Looking at them touches the disk.
func (r *Recorder) broken() ([]byte, error) {
	found, answered := within(r.patience, r.looking, r.Broken)
	switch answered {
	case busy:
		return nil, errStillLooking
	case late:
		return nil, fmt.Errorf("the check of the stores' disk did not end within %v", r.patience)
	}
	return json.Marshal(found)
}

// answered is the result of a wait for the disk: whether the disk answered in time.
type answered int

const (
	inTime answered = iota
	late
	busy // an earlier call still waits for the disk
)

// within is a helper: it runs `do`, which uses the disk, and waits for the result at most as long as
// `patience`. `held` has capacity 1, so that a hanging disk blocks only one goroutine, even if there are
// many calls.
func within[T any](patience time.Duration, held chan struct{}, do func() T) (result T, is answered) {
	select {
	case held <- struct{}{}:
	default:
		return result, busy
	}
	done := make(chan T, 1)
	go func() {
		result := do()
		<-held
		done <- result
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case result = <-done:
		return result, inTime
	case <-timer.C:
		return result, late
	}
}

// write writes a record, whole or not at all, and removes the oldest records beyond the bounds.
func (r *Recorder) write(id string, text []byte) error {
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		return err
	}
	temp := r.path(id) + ".tmp"
	err := r.writeFile(temp, text, 0o640)
	if err == nil {
		err = os.Rename(temp, r.path(id))
	}
	if err != nil {
		_ = os.Remove(temp) // if this fails, the next start removes the file
		return err
	}
	if err := r.trim(id); err != nil {
		r.Logger.Warn("old records that exceed the limits could not be removed", "error", err)
	}
	return nil
}

func (r *Recorder) path(id string) string { return filepath.Join(r.Dir, id+suffix) }

// Content is the zip file of a record. The caller of Open must close it.
type Content struct {
	*io.SectionReader
	io.Closer
	Modified time.Time
}

// ErrUnknown means that there is no such record.
var ErrUnknown = errors.New("there is no such record; it may have been removed to make room for newer records")

// Open opens a record. A record that was not kept is read from memory, without the disk.
func (r *Recorder) Open(id string) (*Content, error) {
	if !idForm.MatchString(id) { // id comes from outside, and becomes part of a path
		return nil, ErrUnknown
	}
	if u := r.unkept.Load(); u != nil && u.ID == id {
		text := bytes.NewReader(u.text)
		return &Content{io.NewSectionReader(text, 0, text.Size()), io.NopCloser(text), u.Ended}, nil
	}
	f, err := os.Open(r.path(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Content{io.NewSectionReader(f, 0, info.Size()), f, info.ModTime()}, nil
}
