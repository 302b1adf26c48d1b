package docs_test

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/golang/snappy"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/sender"
)

// format/entry.md shows, byte by byte, an entry as the code writes it.
func TestExampleOfAnEntry(t *testing.T) {
	_, example, _ := strings.Cut(read(t, "format/entry.md"), "```entry\n")
	example, _, _ = strings.Cut(example, "```")
	var drawn []string
	for line := range strings.Lines(example) {
		digits, _, _ := strings.Cut(line, "  ") // the rest of the line is a remark
		drawn = append(drawn, strings.Fields(digits)...)
	}
	e := entry.Entry{Kind: entry.KindRequest, Shape: 1, Request: entry.Request{
		Tenant: "default", Arrival: 1_795_228_020_154, Window: 1_800_000, MaxSeries: 100_000, MaxTenants: 100,
		Sender: sender.Sender{Addr: netip.MustParseAddrPort("10.0.0.1:0"), Agent: "curl/8"},
		Form:   entry.RemoteWrite2, Body: snappy.Encode(nil, []byte{4<<3 | 2, 0}),
	}}
	if got, want := strings.Join(drawn, ""), hex.EncodeToString(e.Append(nil)); got != want {
		t.Errorf("the page shows\n%s\nthe code writes\n%s", got, want)
	}
}
