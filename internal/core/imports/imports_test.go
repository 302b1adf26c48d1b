package imports

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
)

// step returns a step of the import of a block, which nodes have under another name in each import.
func step(s entry.ImportStep, tenant string, block, stored byte) *entry.Import {
	e := &entry.Import{Step: s, Tenant: tenant, Block: [16]byte{block}}
	if s != entry.ImportRemoved {
		e.Stored = [16]byte{1, stored}
	}
	if s == entry.ImportOffered {
		e.Node, e.MinTime, e.MaxTime, e.Series, e.Samples = "a", -1, 1, 2, 3
		e.Files = entry.AppendImportedFile(nil, &entry.ImportedFile{Name: "index", Size: 4})
	}
	return e
}

func offer(block, stored byte) *entry.Import { return step(entry.ImportOffered, "acme", block, stored) }
func show(block, stored byte) *entry.Import  { return step(entry.ImportShown, "acme", block, stored) }
func giveUp(block, stored byte) *entry.Import {
	return step(entry.ImportWithdrawn, "acme", block, stored)
}
func remove(block byte) *entry.Import { return step(entry.ImportRemoved, "acme", block, 0) }

func fold(t *testing.T, k *Kept, all ...*entry.Import) {
	t.Helper()
	for _, e := range all {
		if err := k.Fold(e); err != nil {
			t.Fatalf("step %d of block %x: %v", e.Step, e.Block[0], err)
		}
	}
}

// has checks the blocks of a Kept: under which name nodes have each, and whether queries see it.
func has(t *testing.T, k *Kept, block byte, stored byte, shown bool) {
	t.Helper()
	b, known := k.Get("acme", [16]byte{block})
	if !known || b.Stored != [16]byte{1, stored} || b.Shown != shown {
		t.Errorf("block %x is %+v, known: %v; want stored as %x, shown: %v", block, b, known, stored, shown)
	}
}

// A block is shown once it was offered, and a repeated step changes nothing: a node repeats it if the answer was lost.
func TestAnImportIsOfferedAndShown(t *testing.T) {
	k := NewKept()
	if err := k.Fold(show(7, 1)); !errors.Is(err, ErrGivenUp) {
		t.Errorf("a block that was not offered: %v, want ErrGivenUp", err)
	}
	fold(t, k, offer(7, 1), offer(7, 1))
	has(t, k, 7, 1, false)
	fold(t, k, show(7, 1), show(7, 1), offer(7, 1))
	has(t, k, 7, 1, true)
	if err := k.Fold(offer(7, 2)); !errors.Is(err, ErrKnown) {
		t.Errorf("a block that is there: %v, want ErrKnown", err)
	}
	if err := k.Fold(giveUp(7, 1)); !errors.Is(err, ErrKnown) {
		t.Errorf("an import that is done is given up: %v, want ErrKnown", err)
	}
	if len(k.Gone()) != 0 {
		t.Errorf("%v is gone", k.Gone())
	}
}

// An import that did not end holds up no other one of the same block, even if its node is gone.
func TestAnotherImportTakesThePlaceOfOneThatDidNotEnd(t *testing.T) {
	k := NewKept()
	fold(t, k, offer(7, 1), offer(7, 2))
	has(t, k, 7, 2, false)
	if err := k.Fold(show(7, 1)); !errors.Is(err, ErrGivenUp) {
		t.Errorf("the first import is shown: %v, want ErrGivenUp", err)
	}
	if err := k.Fold(offer(7, 1)); !errors.Is(err, ErrGivenUp) {
		t.Errorf("the first import is offered again: %v, want ErrGivenUp", err)
	}
	fold(t, k, giveUp(7, 1))
	has(t, k, 7, 2, false)
	if gone := k.Gone(); len(gone) != 1 || gone[0].Stored != [16]byte{1, 1} {
		t.Errorf("%v is gone, want the first import", gone)
	}
}

// Nodes remove what was removed, whether it was imported into the cluster or came with its founder. A block may be
// imported again afterwards, and then has another name on disk, so that a node that was away tells the two apart.
func TestRemovedBlocksAreRemembered(t *testing.T) {
	k := NewKept()
	fold(t, k, offer(7, 1), show(7, 1), remove(7), remove(9), remove(9), offer(7, 2), show(7, 2))
	has(t, k, 7, 2, true)
	want := []Gone{{"acme", [16]byte{1, 1}}, {"acme", [16]byte{9}}}
	if gone := k.Gone(); !slices.Equal(gone, want) {
		t.Errorf("%v is gone, want %v", gone, want)
	}
}

// Blocks are listed by tenant and name, as of the last step. A list that was handed out stays as it is.
func TestBlocksAreListed(t *testing.T) {
	k := NewKept()
	other := step(entry.ImportOffered, "b", 1, 9)
	fold(t, k, other, offer(7, 1), step(entry.ImportOffered, "a", 5, 2), offer(3, 4))
	names := func(all []Block) (text string) {
		for _, b := range all {
			text += fmt.Sprint(b.Tenant, b.Block[0], " ")
		}
		return text
	}
	all, before := k.All()
	if got := names(all); got != "a5 acme3 acme7 b1 " {
		t.Errorf("all are %s", got)
	}
	for tenant, want := range map[string]string{"a": "a5 ", "acme": "acme3 acme7 ", "b": "b1 ", "aa": "", "c": ""} {
		if got := names(k.Of(tenant)); got != want {
			t.Errorf("tenant %s has %q, want %q", tenant, got, want)
		}
	}
	fold(t, k, show(7, 1), remove(3))
	now, after := k.All()
	if got := names(now); got != "a5 acme7 b1 " || !now[1].Shown || after == before {
		t.Errorf("after a removal, all are %s, shown: %v; number %d after %d", got, now[1].Shown, after, before)
	}
	if got := names(all); got != "a5 acme3 acme7 b1 " || all[2].Shown {
		t.Errorf("the earlier list is now %s, shown: %v", got, all[2].Shown)
	}
}

// What blocks take has a bound, and so has what is remembered of removals. There is room for the blocks that
// docs/history.md names.
func TestKeptIsBounded(t *testing.T) {
	k := NewKept()
	usual := step(entry.ImportOffered, "default", 7, 1)
	usual.Node, usual.Series, usual.Samples, usual.Files = "node-a", 1_000_000, 1<<40, nil
	for _, name := range []string{"chunks/000001", "index", "meta.json", "tombstones"} {
		usual.Files = entry.AppendImportedFile(usual.Files, &entry.ImportedFile{Name: name})
	}
	if n := MaxBytes / sizeOf(usual); n < 100_000 {
		t.Errorf("there is room for %d usual blocks, want 100000", n)
	}
	large := offer(7, 1)
	for len(large.Files) < MaxBytes {
		large.Files = append(large.Files, large.Files...)
	}
	if err := k.Fold(large); !errors.Is(err, ErrTooMany) || !k.Empty() {
		t.Errorf("a block of %d bytes: %v, want ErrTooMany", len(large.Files), err)
	}
	for i := range MaxGone + 1 {
		e := remove(0)
		e.Block = [16]byte{byte(i), byte(i >> 8), byte(i >> 16)}
		fold(t, k, e)
	}
	if gone := k.Gone(); len(gone) != MaxGone || gone[0].Stored != [16]byte{1} {
		t.Errorf("%d removals are remembered, the oldest %x; want %d, without the first", len(gone), gone[0].Stored, MaxGone)
	}
}

// Members that came to the same blocks in different ways have the same hash and the same bytes.
func TestTheHashIsOfTheState(t *testing.T) {
	k := NewKept()
	if k.Hash() != 0 {
		t.Error("without blocks, the hash is not 0")
	}
	fold(t, k, offer(7, 1), show(7, 1), offer(3, 4), remove(5))
	restored := NewKept()
	if err := restored.Parse(k.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if k.Hash() != restored.Hash() || !bytes.Equal(k.Append(nil), restored.Append(nil)) {
		t.Error("a restored state is another one")
	}
	fold(t, k, remove(3))
	if k.Hash() == restored.Hash() {
		t.Error("a removal changes no hash")
	}
}

// A damaged disk may return any bytes.
func FuzzKept(f *testing.F) {
	k := NewKept()
	f.Add(k.Append(nil))
	other := step(entry.ImportOffered, "b", 1, 9)
	for _, e := range []*entry.Import{offer(7, 1), show(7, 1), offer(3, 4), remove(5), other} {
		if err := k.Fold(e); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(k.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		k := NewKept()
		if k.Parse(b) == nil && !bytes.Equal(k.Append(nil), b) {
			t.Errorf("% x is encoded as % x", b, k.Append(nil))
		}
	})
}
