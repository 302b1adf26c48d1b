package member

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/marks"
)

// importOf returns a step of the import of a block.
func importOf(step entry.ImportStep, tenant string) *entry.Entry {
	e := entry.Import{Step: step, Tenant: tenant, Block: [16]byte{1}, Stored: [16]byte{2}}
	if step == entry.ImportOffered {
		e.Node, e.MaxTime, e.MaxTenants = "a", 1, 1
		e.Files = entry.AppendImportedFile(nil, &entry.ImportedFile{Name: "index"})
	}
	return &entry.Entry{Kind: entry.KindImport, Shape: 1, Group: group, Import: e}
}

// bring asks the leader for a step of an import, and returns the answer.
func (g *three) bring(id ID, step entry.ImportStep) error {
	g.t.Helper()
	return g.drain(id, func(l *testNode) { l.Write(g.now, id, importOf(step, "acme")) })
}

// What one node imports, all know, and also one that is restored from a checkpoint.
func TestImportsAreOnAllMembers(t *testing.T) {
	g := newABC(t)
	if err := g.bring(20, entry.ImportShown); !errors.Is(err, imports.ErrGivenUp) {
		t.Errorf("a block is shown that was not offered: %v", err)
	}
	for id, step := range []entry.ImportStep{entry.ImportOffered, entry.ImportShown} {
		if err := g.bring(ID(30+id), step); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	g.pass(20_000)
	for _, n := range g.nodes[:3] {
		section := n.State().AppendGroup(nil)
		restored, err := Restore(g.leader().State().group, n.State().config, section)
		if err != nil || section[0] != withBlocks || !bytes.Equal(restored.AppendGroup(nil), section) {
			t.Fatalf("a section of version %d is not restored: %v", section[0], err)
		}
		for _, m := range []*Member{n.State(), restored} {
			if b, known := m.Imports().Get("acme", [16]byte{1}); !known || !b.Shown || !m.has.Has("acme") {
				t.Errorf("a member has %+v, known: %v, its tenant admitted: %v", b, known, m.has.Has("acme"))
			}
		}
	}
}

// Members with other imports are found.
func TestMarksHaveImports(t *testing.T) {
	last := func(removed bool) marks.Mark {
		m := New(group, &config)
		for index := range uint64(marks.Every) {
			e := importOf(entry.ImportOffered, "acme")
			if index > 0 {
				e = importOf(entry.ImportShown, "acme")
			}
			if removed && index+1 == marks.Every {
				e = importOf(entry.ImportRemoved, "acme")
				e.Import.Stored = [16]byte{}
			}
			if _, err := m.Apply(index+1, e.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		return m.Marks()[len(m.Marks())-1]
	}
	if last(false).Hash == last(true).Hash {
		t.Error("members with different imports have equal marks")
	}
}

// An import takes the place of a tenant, as a request does.
func TestImportsAdmitTenants(t *testing.T) {
	m := New(group, &config)
	for index, tenant := range []string{"acme", "other"} {
		done, err := m.Apply(uint64(index+1), importOf(entry.ImportOffered, tenant).Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		full := errors.Is(done.Refused, imports.ErrTooMany) && strings.Contains(done.Refused.Error(), "store.max_tenants")
		if full != (tenant == "other") {
			t.Errorf("the import of tenant %s is refused: %v", tenant, done.Refused)
		}
	}
	if len(m.Imports().Of("other")) > 0 {
		t.Error("the block of a refused tenant is there")
	}
}

// Until all nodes know of imports, none is proposed: an older node would stop.
func TestNoImportBeforeTheVersionRises(t *testing.T) {
	g := newOlder(t, time.Hour, withImports-1)
	if err := g.bring(20, entry.ImportOffered); !errors.Is(err, ErrOlder) {
		t.Errorf("the answer is %v, want ErrOlder", err)
	}
}
