package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"

	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/lib/boltfile"
)

// filled returns the path of a log with events of two tenants. It has removed others.
func filled(t *testing.T, c *clock) (path string) {
	path = filepath.Join(t.TempDir(), "events.db")
	l := open(t, DefaultConfig(), path, c)
	for i := range 40 {
		if err := l.AppendEntries(t.Context(), 0, []*member.Events{entryOf(uint64(i), 1_000_000, 60, "a", "b")}); err != nil {
			t.Fatal(err)
		}
		add(t, l, event.Event{Tenant: "b", Time: 1_000_000, Title: fmt.Sprint("title ", i), Tags: []string{"x"}})
	}
	if err := l.Reaches(0, 30); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Verify(), l.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// A bit of a file flips, before the log is opened or while it is open. Then the log begins anew, or Verify finds the
// damage, or all answers are as before.
func TestRandomFlips(t *testing.T) {
	c := &clock{ms: 1_000_000}
	from := filled(t, c)
	whole, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, DefaultConfig(), from, c)
	want := append(titles(t, l, all("a")), titles(t, l, all("b"))...)
	if len(want) != 100 {
		t.Fatalf("the log has %d events, want 100", len(want))
	}
	for _, whileOpen := range []bool{false, true} {
		lost, found, same := 0, 0, 0
		for seed := range uint64(150) {
			r := rand.New(rand.NewPCG(seed, 1))
			path := filepath.Join(t.TempDir(), "events.db")
			if err := os.WriteFile(path, whole, 0o640); err != nil {
				t.Fatal(err)
			}
			flip := func() {
				f, err := os.OpenFile(path, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				at := r.Int64N(int64(len(whole)))
				if _, err := f.WriteAt([]byte{whole[at] ^ 1<<r.IntN(8)}, at); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if !whileOpen {
				flip()
			}
			begun := false
			l, err := Open(DefaultConfig(), path, c.now, func(error) error { begun = true; return nil },
				prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if whileOpen {
				flip()
			}
			var got []Event
			for _, tenant := range []string{"a", "b"} {
				some, err := l.Query(t.Context(), all(tenant))
				if err != nil && !begun {
					t.Errorf("seed %d: nobody is told of %v", seed, err)
				}
				got = append(got, some...)
			}
			switch err := l.Verify(); {
			case begun:
				lost++
			case err != nil:
				found++
			case !slices.EqualFunc(got, want, func(e Event, s string) bool { return fmt.Sprint(e.Time, " ", e.Title) == s }):
				t.Errorf("seed %d: the log has %v", seed, got)
			default:
				same++
			}
			add(t, l, event.Event{Tenant: "c", Time: 1_000_000, Title: "later"})
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("while open %v: the log began anew %d times, the check found %d flips, %d have no effect", whileOpen, lost,
			found, same)
		if lost+found < 5 {
			t.Errorf("only %d flips were found", lost+found)
		}
	}
}

// Events that changed are found at each later start, however many events come after the damage. A file of an earlier
// release, which has no sum or did not change it, gets one.
func TestTheSumOfEvents(t *testing.T) {
	c := &clock{ms: 1_000_000}
	path := filled(t, c)
	change := func(what func(file []byte) []byte) {
		t.Helper()
		file, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, what(file), 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	verified := func() error {
		l := open(t, DefaultConfig(), path, c)
		err := l.Verify()
		add(t, l, event.Event{Tenant: "b", Time: 1_000_000, Title: "later"})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if copied := VerifyCopy(path); (copied == nil) != (err == nil) {
			t.Errorf("the check of a copy says %v, and before %v", copied, err)
		}
		return err
	}
	change(func(f []byte) []byte { return bytes.Replace(f, []byte("title 39"), []byte("title 93"), -1) })
	for range 3 {
		if err := verified(); err == nil {
			t.Error("the changed title is not found")
		}
	}
	change(func(f []byte) []byte { return bytes.Replace(f, []byte("title 93"), []byte("title 39"), -1) })
	if err := verified(); err != nil {
		t.Errorf("the title is as it was, and the check says %v", err)
	}
	for what, earlier := range map[string]func(tx *bbolt.Tx) error{
		"has no sum": func(tx *bbolt.Tx) error { return tx.Bucket([]byte(reachedBucket)).Delete(sumKey) },
		"did not change the sum": func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("b"))
			id, err := b.NextSequence()
			e := event.Event{Time: 1, Title: "of an earlier release"}
			return errors.Join(err, b.Put(key(1, id), e.Append(nil)))
		},
	} {
		db, err := boltfile.Open(path, boltfile.Owner{Read: func(*bbolt.Tx) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(earlier), db.Close()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := verified(); err != nil {
				t.Errorf("a file that %s: %v", what, err)
			}
		}
	}
}
