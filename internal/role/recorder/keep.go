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

// patience is how long the disk may take to write a record, or to say how the stores are. It
// takes some milliseconds for the usual 1 to 5 MB.
const patience = 5 * time.Second

// unkept is a record that the disk did not take. The last one stays in memory until another
// record is made: a server with a full disk is one that somebody wants diagnosed.
type unkept struct {
	record.Record
	text []byte
	why  string
}

var errStillWriting = errors.New("the disk still writes an earlier record")

// keep has a record written, and waits for patience at most: until a disk that hangs goes on,
// other records are not kept.
func (r *Recorder) keep(id string, text []byte) error {
	err, answered := within(r.patience, r.writing, func() error { return r.write(id, text) })
	switch answered {
	case busy:
		return errStillWriting
	case late:
		return fmt.Errorf("the disk did not take it in %v", r.patience)
	}
	return err
}

var errStillLooking = errors.New("an earlier look at the stores still waits for the disk")

// broken are the stores that are broken, as JSON. To look at them touches the disk.
func (r *Recorder) broken() ([]byte, error) {
	found, answered := within(r.patience, r.looking, r.Broken)
	switch answered {
	case busy:
		return nil, errStillLooking
	case late:
		return nil, fmt.Errorf("the disk said nothing of the stores in %v", r.patience)
	}
	return json.Marshal(found)
}

// answered is whether somebody who waits for the disk had an answer in time.
type answered int

const (
	inTime answered = iota
	late
	busy // an earlier one still waits
)

// within has something done that waits for the disk, and waits for it so long. held is of 1: a
// disk that hangs holds one goroutine, however often it is asked.
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

// write writes a record, whole or not at all, and removes those that are too many.
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
		_ = os.Remove(temp) // what stays is removed when the process begins again
		return err
	}
	if err := r.trim(id); err != nil {
		r.Logger.Warn("records that are too many stay", "error", err)
	}
	return nil
}

func (r *Recorder) path(id string) string { return filepath.Join(r.Dir, id+suffix) }

// Content is the zip of a record. Whoever opens it closes it.
type Content struct {
	*io.SectionReader
	io.Closer
	Modified time.Time
}

// ErrUnknown means that there is no such record.
var ErrUnknown = errors.New("there is no such record; it may have made room for newer ones")

// Open opens a record. One that is not kept is read from memory, without the disk.
func (r *Recorder) Open(id string) (*Content, error) {
	if !idForm.MatchString(id) { // it comes from whoever asks, and is part of a path
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
