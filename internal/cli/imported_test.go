package cli

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
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

// A word that names no block is refused before any block is removed, in words.
func TestImportRemoveWithoutABlock(t *testing.T) {
	server, asked := answering(t, http.StatusOK, `{"status":"success","data":{}}`)
	for _, c := range []struct {
		blocks []string
		want   string
	}{
		{nil, "freshet import remove got 0 words; write freshet import remove BLOCK"},
		{[]string{"nosuch"}, `"nosuch" is no block's name; freshet import list names them`},
		{[]string{blockA, "nosuch"}, `"nosuch" is no block's name; freshet import list names them`},
	} {
		code, out, told := freshet(t, append([]string{"import", "remove", "--server", server}, c.blocks...)...)
		if code != command.Usage || out != "" || !strings.Contains(told, c.want) {
			t.Errorf("%q: exit code %d, want one line with %s:\n%s%s", c.blocks, code, c.want, out, told)
		}
	}
	if code, out, told := freshet(t, "import", "remove", "--server", server, blockA); code != command.OK ||
		!strings.HasSuffix(asked().Path, blockA) {
		t.Errorf("exit code %d:\n%s%s", code, out, told)
	}
}
