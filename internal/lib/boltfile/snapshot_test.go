package boltfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// A snapshot has the data of the moment at which it began, and does not block writers.
func TestSnapshot(t *testing.T) {
	db, _ := opened(t, begin(t))
	to := filepath.Join(t.TempDir(), "y.db")
	if err := db.Snapshot(to); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("b")).Put([]byte("later"), []byte("later"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := Check(to, walk); err != nil {
		t.Error(err)
	}
	copied, damaged := opened(t, to)
	if damaged != nil {
		t.Fatal(damaged)
	}
	if n := keys(t, copied); n != 2000 {
		t.Errorf("the snapshot has %d keys, want 2000", n)
	}
	if err := db.Snapshot(to); !errors.Is(err, os.ErrExist) {
		t.Errorf("a snapshot to a file that exists: %v, want ErrExist", err)
	}
}

func TestCheck(t *testing.T) {
	path := begin(t)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(file[len(file)/2:])
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Check(path, walk); err == nil {
		t.Error("the damage was not found")
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(after, file) {
		t.Error("the file was changed")
	}
}
