package sim

import (
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
)

// importedBlocks is how many blocks are imported and removed, of the tenant with rules.
const importedBlocks = 24

// imported is what an operator knows about a block.
type imported struct {
	times  byte // how often its import was begun
	sure   bool // the last step was acknowledged
	stored byte // which import is there; 0 if none
}

// nextImport imports a block at the leader, or removes it. Every node must know at the end what was acknowledged. The
// files of blocks are not in the log, and not in the simulation.
func (s *sim) nextImport() {
	if s.Now > s.end-quietFor {
		return
	}
	s.At(s.Between(500, 2*second), nil, s.nextImport)
	n := s.leader()
	if n == nil {
		return
	}
	number := s.Rand.IntN(importedBlocks)
	is := &s.oracle.imports[number]
	if is.stored != 0 && is.sure {
		s.removeImport(n, number)
		return
	}
	is.times++
	stored := is.times
	e := importStep(entry.ImportOffered, number, stored)
	e.Node, e.MaxTime, e.Files = "a", 1, entry.AppendImportedFile(nil, &entry.ImportedFile{Name: "index"})
	is.sure = false
	s.sayImport(n, e, func(err error) {
		if n := s.leader(); err == nil && n != nil {
			s.showImport(n, number, stored)
		}
	})
}

// importStep returns a step of an import of a block.
func importStep(step entry.ImportStep, number int, stored byte) *entry.Import {
	return &entry.Import{Step: step, Tenant: ruled, Block: [16]byte{1, byte(number)},
		Stored: [16]byte{2, byte(number), stored}}
}

func (s *sim) sayImport(n *node, e *entry.Import, then func(err error)) {
	s.ask(n, func() {
		s.call(n, func(id member.ID) {
			n.node.Write(n.clock(), id, &entry.Entry{Kind: entry.KindImport, Import: *e})
		}, func(a member.Answer) { then(a.Err) })
	})
}

func (s *sim) showImport(n *node, number int, stored byte) {
	s.sayImport(n, importStep(entry.ImportShown, number, stored), func(err error) {
		is := &s.oracle.imports[number]
		if err == nil && is.times == stored { // no other import has begun since
			is.sure, is.stored = true, stored
			s.covered.imports++
		}
	})
}

func (s *sim) removeImport(n *node, number int) {
	e := importStep(entry.ImportRemoved, number, 0)
	e.Stored = [16]byte{}
	is := &s.oracle.imports[number]
	is.sure = false
	is.times++ // so that nothing else is acknowledged meanwhile
	times := is.times
	s.sayImport(n, e, func(err error) {
		if err == nil && is.times == times {
			is.sure, is.stored = true, 0
			s.covered.removals++
		}
	})
}

// hasImports checks that a node knows the imports and the removals that were acknowledged.
func (s *sim) hasImports(n *node) {
	for number, want := range s.oracle.imports {
		if !want.sure {
			continue
		}
		got, known := n.node.State().Imports().Get(ruled, [16]byte{1, byte(number)})
		if known != (want.stored != 0) || known && (!got.Shown || got.Stored[2] != want.stored) {
			s.Fail("node %d has imported block %d as %+v, known: %v; import %d was acknowledged", n.n, number, got, known,
				want.stored)
		}
	}
}
