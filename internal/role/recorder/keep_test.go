package recorder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/settings"
)

// checkUnkept checks a record that the disk did not take: it is still reported, counted, listed and
// readable.
func checkUnkept(t *testing.T, r *Recorder, made record.Listed, why string) {
	t.Helper()
	if !strings.Contains(made.NotKept, why) || testutil.ToFloat64(r.notKept) == 0 || testutil.ToFloat64(r.failed) != 0 {
		t.Errorf("NotKept is %q, and the metrics count %v records not kept and %v failed, want some not kept and 0 "+
			"failed",
			made.NotKept, testutil.ToFloat64(r.notKept), testutil.ToFloat64(r.failed))
	}
	if f := read(t, r, made.ID); f.Reason != made.Reason || len(f.Runtime) == 0 {
		t.Errorf("the record has the reason %q and %d figures of the runtime, want %q and some",
			f.Reason, len(f.Runtime), made.Reason)
	}
	if all, err := r.List(); err != nil || len(all) == 0 || all[0].ID != made.ID || all[0].NotKept != made.NotKept ||
		all[0].Bytes != made.Bytes || all[0].Runtime != nil {
		t.Errorf("listed: %+v, %v", all, err)
	}
}

// A server with a full disk needs a diagnosis. The recorder used to return only the disk's error.
func TestARecordOnAFullDisk(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	full := true
	r.writeFile = func(name string, text []byte, mode os.FileMode) error {
		if !full {
			return os.WriteFile(name, text, mode)
		}
		return errors.Join(os.WriteFile(name, text[:len(text)/2], mode),
			&os.PathError{Op: "write", Path: name, Err: syscall.ENOSPC})
	}
	defer run(t, r)()
	first, err := r.Record(t.Context(), "the disk is full")
	if err != nil {
		t.Fatal(err)
	}
	checkUnkept(t, r, first, "no space left on device")
	if left, err := os.ReadDir(r.Dir); err != nil || len(left) != 0 {
		t.Errorf("the directory has %v, error %v, want no part of a record", left, err)
	}

	full = false
	second, err := r.Record(t.Context(), "there is room again")
	if err != nil || second.NotKept != "" {
		t.Fatal(second.NotKept, err)
	}
	if _, err := r.Open(first.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("Open of the first record returned %v, want ErrUnknown", err)
	}
	if all, err := r.List(); err != nil || len(all) != 1 || all[0].ID != second.ID || all[0].NotKept != "" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestADirectoryThatCannotBeMade(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	r.Dir = filepath.Join(r.Dir, "records")
	if err := os.WriteFile(filepath.Dir(r.Dir), nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	defer run(t, r)()
	made, err := r.Record(t.Context(), "x")
	if err != nil || !strings.Contains(made.NotKept, "not a directory") {
		t.Errorf("%q, %v", made.NotKept, err)
	}
	if _, err := r.Open(made.ID); err != nil {
		t.Error(err)
	}
}

// A disk that hangs, such as a frozen file system, used to block the recorder for ever. Requests for a
// record, or for the list, got no answer.
func TestARecordOnADiskThatHangs(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	r.patience = time.Millisecond
	begun, goesOn := make(chan struct{}, 10), make(chan struct{})
	r.writeFile = func(name string, text []byte, mode os.FileMode) error {
		begun <- struct{}{}
		<-goesOn
		return os.WriteFile(name, text, mode)
	}
	stop := run(t, r)
	first, err := r.Record(t.Context(), "the disk hangs")
	if err != nil {
		t.Fatal(err)
	}
	checkUnkept(t, r, first, "the disk did not store the record within 1ms")
	second, err := r.Record(t.Context(), "it still does")
	if err != nil {
		t.Fatal(err)
	}
	checkUnkept(t, r, second, errStillWriting.Error())
	stop() // must return although the disk hangs
	if n := len(begun); n != 1 {
		t.Errorf("%d goroutines write to the disk, want 1", n)
	}

	close(goesOn)
	r.writing <- struct{}{} // waits until the first record is written
	all, err := r.List()
	if err != nil || len(all) != 2 || all[0].ID != second.ID || all[1].ID != first.ID || all[1].NotKept != "" {
		t.Errorf("after the disk worked again, the list is %+v, error %v, want both records, the first as kept",
			all, err)
	}
}

// If the disk takes the last record late, the list has that record once, as kept.
func TestARecordThatIsWrittenLate(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	r.patience = time.Millisecond
	goesOn := make(chan struct{})
	r.writeFile = func(name string, text []byte, mode os.FileMode) error {
		<-goesOn
		return os.WriteFile(name, text, mode)
	}
	defer run(t, r)()
	made, err := r.Record(t.Context(), "late")
	if err != nil || made.NotKept == "" {
		t.Fatal(made.NotKept, err)
	}
	close(goesOn)
	r.writing <- struct{}{}
	if all, err := r.List(); err != nil || len(all) != 1 || all[0].ID != made.ID || all[0].NotKept != "" {
		t.Errorf("%+v, %v", all, err)
	}
}

// Only one goroutine waits for a disk that hangs, even if many records are made meanwhile.
func TestADiskThatHangsIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
		goesOn, writes := make(chan struct{}), 0
		r.writeFile = func(string, []byte, os.FileMode) error { writes++; <-goesOn; return nil }
		for i := range 10 {
			begun := time.Now()
			err := r.keep(fmt.Sprintf("20261121T00000%d.000-asked", i), nil)
			want := time.Duration(0)
			if i == 0 {
				want = patience
			}
			if waited := time.Since(begun); err == nil || waited != want {
				t.Errorf("record %d: got the error %v after %v, want an error after %v", i, err, waited, want)
			}
		}
		synctest.Wait()
		if writes != 1 {
			t.Errorf("%d goroutines write to the disk, want 1", writes)
		}
		close(goesOn)
	})
}

// The new record counts as kept even if an old record cannot be removed.
func TestAnOldRecordThatStays(t *testing.T) {
	var log strings.Builder
	r := newRecorder(t, settings.DefaultRecorder(), &log)
	r.Config.Records = 1
	old := r.path("20251121T000000.000-asked")
	if err := os.MkdirAll(filepath.Join(old, "not empty"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := r.keep("20261121T000000.000-asked", nil); err != nil || !strings.Contains(log.String(), old) {
		t.Errorf("%v, log: %s", err, &log)
	}
}

// A check of the stores waits for the disk. A hanging disk used to block the record, and so the
// recorder, for ever. Now the record states why it has no report on the stores.
func TestALookAtStoresOnADiskThatHangs(t *testing.T) {
	r := newRecorder(t, settings.DefaultRecorder(), io.Discard)
	r.patience = 20 * time.Millisecond
	looks, goesOn := make(chan struct{}, 10), make(chan struct{})
	healthy := r.Broken
	r.Broken = func() []record.BrokenStore {
		looks <- struct{}{}
		<-goesOn
		return healthy()
	}
	stop := run(t, r)
	for _, why := range []string{"the check of the stores' disk did not end within 20ms", errStillLooking.Error()} {
		made, err := r.Record(t.Context(), "the disk hangs")
		if err != nil {
			t.Fatal(err)
		}
		if f := read(t, r, made.ID); f.Missing[record.Stores] != why || len(f.Missing) != 1 {
			t.Errorf("missing: %q", f.Missing)
		}
	}
	if n := len(looks); n != 1 {
		t.Errorf("%d goroutines check the stores, want 1", n)
	}

	close(goesOn)
	r.looking <- struct{}{} // waits until the first check has ended
	<-r.looking
	r.patience = time.Minute
	made, err := r.Record(t.Context(), "it goes on")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := read(t, r, made.ID).Read(record.Stores); err != nil ||
		!strings.Contains(string(text), `"store":"10s"`) {
		t.Errorf("%q, %v", text, err)
	}
	stop()
}
