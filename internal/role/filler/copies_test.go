package filler

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// At a low rate, a file takes longer than a copy is kept unused. The next file must still be there.
func TestACopyStaysWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		copyTo := func(_ context.Context, dir string) ([]File, error) {
			if err := os.MkdirAll(dir, 0o750); err != nil {
				return nil, err
			}
			return []File{{"one", 2}}, os.WriteFile(filepath.Join(dir, "one"), []byte("12"), 0o640)
		}
		c, err := NewCopies(filepath.Join(dir, "copies"), copyTo, copyTo)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Make(t.Context(), "b", true); err != nil {
			t.Fatal(err)
		}
		f, err := c.Open("b", "one")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for range 2 {
			time.Sleep(unusedTime - time.Second)
			c.sweep()
			if _, err := io.ReadFull(f, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := c.Open("b", "one"); err != nil {
			t.Errorf("the copy is removed while it is read: %v", err)
		} else {
			again.Close()
		}
		time.Sleep(unusedTime + time.Second)
		if c.sweep(); len(c.all["b"].sizes) > 0 {
			t.Error("an unused copy stays")
		}
	})
}
