package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
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

// opened opens a database that its owner walks over. `damage` is nil if none was found.
func opened(t *testing.T, path string) (db *DB, damage *Damage) {
	t.Helper()
	db, err := Open(path, Owner{Read: walk, Damaged: func(d Damage) error {
		damage = &d
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, damage
}

// begin creates a database of a few hundred pages, closes it and returns its path.
func begin(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.db")
	db, damaged := opened(t, path)
	if damaged != nil {
		t.Fatal(damaged)
	}
	err := db.Update(func(tx *bbolt.Tx) error {
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

func keys(t *testing.T, db *DB) (n int) {
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
	db, damaged := opened(t, begin(t))
	if damaged != nil {
		t.Fatal(damaged)
	}
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
			db, damaged := opened(t, path)
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
		opened(t, path)
		if _, err := Open(path, Owner{Read: walk}); err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		if _, err := Open(filepath.Join(t.TempDir(), "none", "x.db"), Owner{Read: walk}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a directory in its place", func(t *testing.T) {
		dir := t.TempDir()
		if _, err := Open(dir, Owner{Read: walk}); err == nil {
			t.Error("want an error, got none")
		}
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the file was moved: %v", err)
		}
	})
}

// A bit flips in the head of a page. Open finds that, or the owner reads all of it as it was, or as it was before the
// last transaction. Nothing panics, then or when everything is written anew.
func TestRandomFlips(t *testing.T) {
	path := begin(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pages := len(whole) / os.Getpagesize()
	found := 0
	seeds := uint64(150)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		bad := bytes.Clone(whole)
		at := r.IntN(pages)*os.Getpagesize() + r.IntN(pageHeader+2*elementSize)
		bad[at] ^= 1 << r.IntN(8)
		path := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		db, damage := opened(t, path)
		if damage != nil {
			found++
		} else if n := keys(t, db); n != 2000 && n != 0 {
			t.Errorf("seed %d: %d keys are left after a flip at byte %d", seed, n, at)
		}
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			for i := range 2000 {
				err = errors.Join(err, b.Delete(fmt.Appendf(nil, "%06d", i)))
			}
			return errors.Join(err, b.Put([]byte("x"), []byte("x")))
		})
		if err != nil {
			t.Errorf("seed %d: the database cannot be written: %v", seed, err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if found < int(seeds)/3 {
		t.Errorf("only %d flips were found", found)
	}
}

// Pages become noise, or unreadable, while the database is open. Readers get an error, the owner is told once, and the
// next update begins a new database.
func TestDamageWhileOpen(t *testing.T) {
	for what, damage := range map[string]func(path string) error{
		"noise": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			info, err := f.Stat()
			if err != nil {
				return err
			}
			_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(info.Size())-2*os.Getpagesize()), 2*int64(os.Getpagesize()))
			return errors.Join(err, f.Close())
		},
		"unreadable: the file is shorter than its map, which faults in the same way": func(path string) error {
			return os.Truncate(path, 2*int64(os.Getpagesize()))
		},
	} {
		t.Run(what, func(t *testing.T) {
			path, told := begin(t), 0
			db, err := Open(path, Owner{Read: walk, Damaged: func(Damage) error { told++; return nil }})
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := db.View(walk); !isDamage(err) {
					t.Errorf("a reader gets %v", err)
				}
			}
			if err := db.Verify(walk); !isDamage(err) || told != 1 {
				t.Errorf("the check says %v, and the owner was told %d times", err, told)
			}
			for range 2 {
				err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists([]byte("b")); return err })
				if err != nil {
					t.Errorf("a writer gets %v", err)
				}
			}
			if _, err := os.Stat(path + ".damaged"); err != nil || told != 1 {
				t.Errorf("the owner was told %d times, and the damaged file is not kept: %v", told, err)
			}
			if err := errors.Join(db.View(walk), db.Verify(walk), db.Close()); err != nil {
				t.Errorf("the new database: %v", err)
			}
		})
	}
}

func isDamage(err error) bool {
	_, is := errors.AsType[*DamageError](err)
	return is
}

// bbolt goes on with the older of the two metas if the newer one is damaged, and forgets a transaction. Verify says so.
func TestVerifyFindsADamagedMeta(t *testing.T) {
	for page := range int64(metas) {
		path := begin(t)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0xff}, page*int64(os.Getpagesize())+pageHeader+metaTx+3); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		db, damage := opened(t, path)
		if damage != nil {
			t.Fatal(damage)
		}
		if err := db.Verify(walk); err == nil {
			t.Errorf("the meta of page %d is damaged, and that is not found", page)
		}
	}
}
