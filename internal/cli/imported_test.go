package cli

import (
	"bytes"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
)

// A cluster's list also names the nodes that have a block, and the blocks that a node is importing. The golden files
// show what users see.
func TestImportList(t *testing.T) {
	show := func(file string, has answer.History) {
		t.Helper()
		var out bytes.Buffer
		if err := printHistory(&out, has); err != nil {
			t.Fatal(err)
		}
		golden(t, file, out.String())
	}
	has := answer.History{Tenant: "default", Blocks: []answer.HistoryBlock{
		{Block: "01JD0000000000000000000001", MaxTime: 7_200_000, Series: 1200, Samples: 288_000, Bytes: 3 << 20},
		{Block: "01JD0000000000000000000002", MinTime: 7_200_000, MaxTime: 14_400_000, Series: 7, Samples: 1680, Bytes: 900},
	}}
	show("import-list.txt", has)
	has.Blocks[0].Nodes = []string{"a", "c"}
	has.Importing = []string{"01JD0000000000000000000003"}
	show("import-list-cluster.txt", has)
	show("import-list-none.txt", answer.History{Tenant: "default"})
}
