package ledger

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/client"
)

// Our own client reports each count under the name that the ledger expects.
func TestOurClientReportsEachCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c, err := client.New("unixgram://" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil { // sends the report
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 1<<16)
	n, err := conn.Read(packet)
	if err != nil {
		t.Fatal(err)
	}
	reported := map[ClientCount]bool{}
	for line := range strings.Lines(string(packet[:n])) {
		name, _, _ := strings.Cut(line, ":")
		if count, known := ClientCountOf([]byte(name)); known {
			reported[count] = true
		}
	}
	for count := range numClientCounts {
		if !reported[count] {
			t.Errorf("%s%s is not in the client's report:\n%s", clientPrefix, count, packet[:n])
		}
	}
}
