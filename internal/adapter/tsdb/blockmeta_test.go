package tsdb

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/partial"
)

var every = labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")

// metas returns the paths of meta.json of the raw store's blocks.
func (w *world) metas() []string {
	w.t.Helper()
	all, err := filepath.Glob(filepath.Join(w.dir, "tsdb/default/raw/*", metaFile))
	if err != nil || len(all) < 2 {
		w.t.Fatalf("metadata %q, %v", all, err)
	}
	return all
}

// change writes a file with one byte changed. It returns its text before.
func change(t *testing.T, path string, at int, to byte) (was []byte) {
	t.Helper()
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Clone(was)
	text[at] = to
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return was
}

// A byte of meta.json of a block is changed at any position, between two processes. The next opening restores the
// file from its copy, in a group and on one machine, and all answers are as before.
func TestDamagedMetadataOfABlockAreRestored(t *testing.T) {
	for _, group := range []bool{true, false} {
		t.Run(fmt.Sprintf("group %v", group), func(t *testing.T) {
			w := newWorld(t)
			start := func() {
				if w.close(); group {
					w.startWithOthers("first")
					return
				}
				w.open()
			}
			start()
			w.blocks()
			want, err := w.selected(every)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 5))
			restored := 0
			flips := 60
			if testing.Short() {
				flips = 10
			}
			for range flips {
				path := w.metas()[r.IntN(2)]
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				at := r.IntN(len(text))
				change(t, path, at, text[at]^byte(1+r.IntN(255)))
				start()
				got, err := w.selected(every)
				if err != nil || got != want {
					t.Fatalf("byte %d of %s is changed: the store answers\n%s; %v\nwant\n%s", at, path, got, err, want)
				}
				restored += int(testutil.ToFloat64(w.stores.metrics.restored))
				if len(w.stores.Damaged()) > 0 {
					t.Errorf("the store is damaged: %v", w.stores.Damaged())
				}
				if text, err := os.ReadFile(path); err != nil || judgeMeta(filepath.Base(filepath.Dir(path)), text, text) != nil {
					t.Errorf("%s has %s; %v", path, text, err)
				}
			}
			if restored < flips*2/3 {
				t.Errorf("%d files were restored", restored)
			}
		})
	}
}

// Each digit of the times of a block is changed to each other one. These are the changes that hide samples or delete
// blocks, and that tsdb does not see.
func TestAChangedDigitInTheTimesOfABlockIsFound(t *testing.T) {
	w := newWorld(t)
	w.blocks()
	path := w.metas()[0]
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"minTime": `, `"maxTime": `} {
		from := bytes.Index(text, []byte(field)) + len(field)
		for at := from; text[at] >= '0' && text[at] <= '9'; at++ {
			for to := byte('0'); to <= '9'; to++ {
				if to == text[at] {
					continue
				}
				change(t, path, at, to)
				m, err := readMeta(filepath.Dir(path))
				if err != nil || m.damage == nil {
					t.Errorf("%s with %q at byte %d is not found: %v", field, to, at, err)
				}
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// While the process runs, the scrub restores damaged metadata, and so does the next compaction, before it reads them.
func TestDamagedMetadataOfAnOpenStoreAreRestored(t *testing.T) {
	w := newWorld(t)
	w.blocks()
	path := w.metas()[0]
	for name, restore := range map[string]func(){
		"scrub": func() { w.stores.scrubAll(t.Context(), time.Second) },
		"compaction": func() {
			if err := w.stores.Compact(t.Context(), false); err != nil {
				t.Error(err)
			}
		},
	} {
		was := change(t, path, 0, '#')
		restore()
		if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, was) {
			t.Errorf("%s: %s has %s, %v, want %s", name, path, text, err, was)
		}
	}
	if len(w.stores.Damaged()) > 0 {
		t.Errorf("the store is damaged: %v", w.stores.Damaged())
	}
}

// Several scrubs and compactions find the same damage. One of them restores the metadata, and no other fails.
func TestDamagedMetadataAreRestoredOnce(t *testing.T) {
	w := newWorld(t)
	w.blocks()
	path := w.metas()[0]
	for range 50 {
		change(t, path, 0, '#')
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := w.rawStore().keepMetas(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if n := testutil.ToFloat64(w.stores.metrics.restored); n != 50 {
		t.Errorf("the metadata were restored %v times, want 50", n)
	}
}

// A directory of an earlier version has no copies, and a power loss may take one or tear it. The next opening makes
// them. What tsdb itself changes in the metadata later is no damage.
func TestMissingCopiesOfMetadataAreMade(t *testing.T) {
	w := newWorld(t)
	w.blocks()
	w.close()
	paths := w.metas()
	first := filepath.Join(filepath.Dir(paths[0]), metaCopyFile)
	second := filepath.Join(filepath.Dir(paths[1]), metaCopyFile)
	whole, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(first), os.Truncate(second, 20)); err != nil {
		t.Fatal(err)
	}
	w.open()
	if _, err := w.selected(every); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(first); err != nil || !bytes.Equal(text, whole) {
		t.Errorf("the missing copy is %q, %v", text, err)
	}
	if text, err := os.ReadFile(second); err != nil || parseMetaCopy(text) == nil {
		t.Errorf("the torn copy is %q, %v", text, err)
	}

	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	failed := strings.Replace(string(text), `"level": 1,`, `"level": 1, "failed": true,`, 1)
	if failed == string(text) {
		t.Fatalf("%s has no level 1", text)
	}
	if err := os.WriteFile(paths[0], []byte(failed), 0o600); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	if _, err := w.selected(every); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(paths[0]); err != nil || string(text) != failed {
		t.Errorf("%s, %v, want %s", text, err, failed)
	}
}

// Damaged metadata without a copy: a member of a group does not answer. One machine answers with a warning, as
// samples may be missing.
func TestDamagedMetadataWithoutACopy(t *testing.T) {
	for _, group := range []bool{true, false} {
		w := newWorld(t)
		if group {
			w.startWithOthers("first")
		}
		w.blocks()
		w.close()
		path := w.metas()[0]
		if err := errors.Join(os.Truncate(path, 30), os.Remove(filepath.Join(filepath.Dir(path), metaCopyFile))); err != nil {
			t.Fatal(err)
		}
		if w.open(); group {
			w.startWithOthers("first")
			if _, err := w.selected(every); !errors.Is(err, partial.ErrElsewhere) {
				t.Errorf("a member of a group answers with the error %v", err)
			}
			continue
		}
		q, err := w.stores.Querier("default", Raw, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		warnings := fmt.Sprint(q.Select(t.Context(), true, nil, every).Warnings().AsErrors())
		if !strings.Contains(warnings, "may lack samples") || !strings.Contains(warnings, path) {
			t.Errorf("one machine answers with the warnings %s", warnings)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Whatever a copy says, it comes back as it was written, or not at all.
func FuzzMetaCopy(f *testing.F) {
	f.Add(appendMetaCopy(nil, []byte(`{"ulid": "01", "minTime": 1, "maxTime": 2, "version": 1}`)))
	f.Add([]byte(metaCopyMagic))
	f.Fuzz(func(t *testing.T, file []byte) {
		text := parseMetaCopy(file)
		if text != nil && !bytes.Equal(appendMetaCopy(nil, text), file) {
			t.Errorf("%q comes back as %q", file, appendMetaCopy(nil, text))
		}
		if again := parseMetaCopy(appendMetaCopy(nil, file)); !bytes.Equal(again, file) {
			t.Errorf("the text %q comes back as %q", file, again)
		}
		_, _ = parseMeta(text)
	})
}
