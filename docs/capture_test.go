package docs_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/sender"
)

// format/capture.md shows, byte by byte, a capture as the code writes it.
func TestExampleOfACapture(t *testing.T) {
	_, example, _ := strings.Cut(read(t, "format/capture.md"), "```capture\n")
	example, _, _ = strings.Cut(example, "```")
	var drawn []string
	for line := range strings.Lines(example) {
		digits, _, _ := strings.Cut(line, "  ") // the rest of the line is a remark
		drawn = append(drawn, strings.Fields(digits)...)
	}
	var b bytes.Buffer
	err := capture.NewWriter(&b).Write(&capture.Datagram{
		Time: 1_795_228_020_250_000_000, Network: "udp", Address: "127.0.0.1:8125", Missed: 3,
		Sender: sender.Sender{Addr: netip.MustParseAddrPort("127.0.0.1:40000")}, Data: []byte("page_views:1|c"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(drawn, ""), hex.EncodeToString(b.Bytes()); got != want {
		t.Errorf("the page shows\n%s\nthe code writes\n%s", got, want)
	}
}
