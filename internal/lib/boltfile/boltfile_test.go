package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// walk touches every key and value, as callers of Open do.
func walk(tx *bbolt.Tx) error {
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if !bytes.HasPrefix(v, k) {
				return fmt.Errorf("key %q: bad value", k)
			}
			return nil
		})
	})
}

// begin creates a database of a few hundred pages, closes it and returns its path.
func begin(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.db")
	db, damaged, err := Open(path, walk)
	if err != nil || damaged != nil {
		t.Fatal(err, damaged)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		for i := range 2000 {
			k := fmt.Appendf(nil, "%06d", i)
			err = errors.Join(err, b.Put(k, append(k, make([]byte, 500)...)))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func keys(t *testing.T, db *bbolt.DB) (n int) {
	t.Helper()
	err := db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte("b")); b != nil {
			n = b.Stats().KeyN
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOpenAgain(t *testing.T) {
	db, damaged, err := Open(begin(t), walk)
	if err != nil || damaged != nil {
		t.Fatal(err, damaged)
	}
	defer db.Close()
	if n := keys(t, db); n != 2000 {
		t.Errorf("the database has %d keys, want 2000", n)
	}
}

func TestDamage(t *testing.T) {
	for _, c := range []struct {
		why    string
		damage func(file []byte) []byte
	}{
		{"another program's file", func([]byte) []byte { return []byte("hello, I am not a database\n") }},
		{"a disk that was full at the first page", func(f []byte) []byte { return f[:1000] }},
		{"cut short: reading on would fault", func(f []byte) []byte { return f[:len(f)/4] }},
		{"zeros after a power failure, behind the first two pages", func(f []byte) []byte {
			clear(f[2*os.Getpagesize():])
			return f
		}},
		{"noise over all pages but the first two", func(f []byte) []byte {
			for i := 2 * os.Getpagesize(); i < len(f); i++ {
				f[i] = byte(i * 7)
			}
			return f
		}},
		{"values that their owner does not understand", func(f []byte) []byte {
			return bytes.ReplaceAll(f, []byte("001234001234"), []byte("001234001235"))
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			path := begin(t)
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			bad := c.damage(bytes.Clone(file))
			if err := os.WriteFile(path, bad, 0o666); err != nil {
				t.Fatal(err)
			}
			db, damaged, err := Open(path, walk)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if damaged == nil {
				t.Fatal("the damage was not found")
			}
			if kept, _ := os.ReadFile(damaged.MovedTo); !bytes.Equal(kept, bad) {
				t.Error("the damaged file was changed")
			}
			if n := keys(t, db); n != 0 {
				t.Errorf("the new database has %d keys, want 0", n)
			}
			if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("b")); return err }); err != nil {
				t.Errorf("the new database cannot be written: %v", err)
			}
		})
	}
}

// An error whose cause is not the file is returned, and the file stays where it is.
func TestNotDamage(t *testing.T) {
	t.Run("in use", func(t *testing.T) {
		path := begin(t)
		db, _, err := Open(path, walk)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, _, err := Open(path, walk); err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		if _, _, err := Open(filepath.Join(t.TempDir(), "none", "x.db"), walk); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a directory in its place", func(t *testing.T) {
		dir := t.TempDir()
		if _, _, err := Open(dir, walk); err == nil {
			t.Error("want an error, got none")
		}
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the file was moved: %v", err)
		}
	})
}
