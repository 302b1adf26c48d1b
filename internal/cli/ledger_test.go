package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// fill posts at least one sample to each state.
func fill(l *ledger.Ledger) {
	l.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 1_000_020},
		ledger.Transfer{From: ledger.Received, To: ledger.Malformed, Reason: "no_type", Samples: 15},
		ledger.Transfer{From: ledger.Received, To: ledger.Malformed, Reason: "bad_value", Samples: 5},
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: 1_000_000})
	l.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Restored, Samples: 30},
		ledger.Transfer{From: ledger.Restored, To: ledger.Tile, Samples: 30})
	l.Post("default", ledger.Transfer{From: ledger.Window, To: ledger.Tile, Samples: 900_000},
		ledger.Transfer{From: ledger.Window, To: ledger.Late, Reason: "late_gauge", Samples: 2})
	l.Post("default", ledger.Transfer{From: ledger.Tile, To: ledger.Stored, Samples: 800_030})
	l.Note("default", ledger.LateKept, 70)
	l.Datagrams("default", ledger.Datagrams{Read: 40_000, KernelDropped: 123})
	l.Client("default", ledger.PacketsSent, 41_000)
	l.Client("default", ledger.PacketsDropped, 877)
	l.Close(1_795_167_065_000)
}

// bookServer answers with the books of a tenant.
func bookServer(books *ledger.Ledger, previous *answer.Previous) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := books.Books()
		data := answer.Ledger{
			Name: "default", Started: 1_795_160_000_000, Boundary: now.Boundary, Tenant: now.Of("default"), Previous: previous,
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data})
	}))
}

// The golden file shows what users see.
func TestLedger(t *testing.T) {
	books := ledger.New()
	fill(books)
	web := bookServer(books, &answer.Previous{Written: 1_795_159_990_000, Tenant: books.Books().Of("default")})
	defer web.Close()
	code, stdout, stderr := freshet(t, "ledger", "--server", web.URL)
	if code != command.OK {
		t.Fatal(stderr)
	}
	golden(t, "ledger.txt", stdout)

	code, stdout, stderr = freshet(t, "ledger", "--json", "--server", web.URL)
	var a struct {
		Status string
		Data   answer.Ledger
	}
	if err := json.Unmarshal([]byte(stdout), &a); code != command.OK || err != nil || a.Status != "success" ||
		a.Data.Samples.Received != 1_000_020 {
		t.Errorf("exit code %d, error %v, output %s%s", code, err, stdout, stderr)
	}
}

// An Alertmanager that takes nothing stands out.
func TestLedgerOfNotifications(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		data := answer.Ledger{Name: "default", Notifications: []answer.Notifications{
			{Alertmanager: "http://a:9093/api/v2/alerts", Sent: 1200},
			{Alertmanager: "http://b:9093/api/v2/alerts", Dropped: 1100, Waiting: 100},
		}}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data})
	}))
	defer web.Close()
	code, stdout, stderr := freshet(t, "ledger", "--server", web.URL)
	_, got, _ := strings.Cut(strings.Join(strings.Fields(stdout), " "), "NOTIFICATIONS ")
	want := "sent to http://a:9093/api/v2/alerts 1,200 dropped 0 waiting 0 " +
		"sent to http://b:9093/api/v2/alerts 0 dropped 1,100 waiting 100"
	if code != command.OK || got != want {
		t.Errorf("exit code %d, %s: got %q, want %q", code, stderr, got, want)
	}
}

// The ledger names the mapping rule that would accept refused decrements.
func TestLedgerNamesTheRuleForDecrements(t *testing.T) {
	books := ledger.New()
	web := bookServer(books, nil)
	defer web.Close()
	for _, want := range []bool{false, true} {
		code, stdout, stderr := freshet(t, "ledger", "--server", web.URL)
		if code != command.OK ||
			strings.Contains(stdout, "3 would have decreased a counter: a mapping rule with updown: true") != want {
			t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
		}
		books.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 3},
			ledger.Transfer{From: ledger.Received, To: ledger.Refused, Reason: "negative", Samples: 3})
	}
}

// On a terminal, losses and the verdict are coloured. Each page replaces the page before it, and shows
// what has changed since that page.
func TestLedgerOnATerminal(t *testing.T) {
	books := ledger.New()
	fill(books)
	web := bookServer(books, nil)
	defer web.Close()
	var out strings.Builder
	l := ledgerView{
		pages:  pages{View: terminal.View{Out: &out, Notes: io.Discard, Columns: 80, Colour: true}, live: true},
		server: apiclient.Server{Address: web.URL},
	}
	show := func() {
		t.Helper()
		if err := l.show(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	show()
	books.Post("default", ledger.Transfer{From: ledger.Tile, To: ledger.Stored, Samples: 50_000},
		ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 7})
	books.Close(1_795_167_070_000)
	show()
	golden(t, "ledger-terminal.txt", strings.ReplaceAll(out.String(), "\x1b", "ESC"))
}

// An interrupt is the usual end of the command, so it is not a failure.
func TestLedgerWatchIsInterrupted(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	}))
	defer web.Close()
	if code, _, stderr := freshet(t, "ledger", "--watch", "--server", web.URL); code != command.OK || stderr != "" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// The command says how much waits for a tenant's store, the store's error, and that new
// samples are refused.
func TestLedgerSaysWhatWaits(t *testing.T) {
	l := ledgerView{seen: []answer.Ledger{{
		Name: "b",
		Waiting: &answer.Waiting{
			Samples: 1234, Since: 1_763_679_960_000, Error: "open tsdb/b/10s: not a directory", Refused: true,
		},
	}}}
	text, err := l.page()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Of the samples in tiles, 1,234 have waited for a store since ",
		": open tsdb/b/10s: not a directory\n", "The limit store.pending is reached"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	l.seen[0].Waiting.Error = "" // a store that works has waiting samples every 10 s, too
	if text, _ := l.page(); strings.Contains(text, "wait for a store") {
		t.Errorf("the page reports waiting samples for a store that works\n%s", text)
	}
}

// In a cluster, the page names the nodes in the sum, the nodes whose books are missing or old, and the
// nodes whose books have a difference.
func TestLedgerOfACluster(t *testing.T) {
	books := ledger.New()
	fill(books)
	own := books.Books().Of("default")
	l := ledgerView{seen: []answer.Ledger{{
		Name: "default", Tenant: own, Node: "a", Short: true, Nodes: []answer.LedgerNode{
			{Name: "a"}, {Name: "b", Error: "no route to b", AgeSeconds: new(12.4)}, {Name: "c", Error: "no route to c"},
		},
	}}}
	page := func() string {
		t.Helper()
		text, err := l.page()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, want := range []string{
		"tenant default in the cluster, node a since ",
		"What came in is the sum of 2 of 3 nodes: a, b. What the log brought is node a's copy.\n",
		"The sum may be short: the books of node b are 12 s old: no route to b\n",
		"The sum may be short: the books of node c are missing: no route to c\n",
	} {
		if text := page(); !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	for i := range 7 {
		name := fmt.Sprint("web-", i)
		l.seen[0].Collectors = append(l.seen[0].Collectors, answer.LedgerCollector{LedgerNode: answer.LedgerNode{Name: name}})
	}
	silent := &l.seen[0].Collectors[6]
	silent.Error, silent.AgeSeconds, silent.Difference = "it tells nothing", new(90.0), 3
	l.seen[0].Nodes[1].Difference, l.seen[0].Samples.Difference = 3, 6
	text := page()
	for _, want := range []string{
		": a, b, with the collectors web-0, web-1, web-2, web-3, web-4 and 2 more. What",
		"The sum may be short: the books of collector web-6 are 90 s old: it tells nothing\n",
		"The books of node b, collector web-6 do not close",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	l.seen[0] = answer.Ledger{Name: "default", Tenant: own, Node: "a"}
	text = page()
	if !strings.Contains(text, "tenant default at node a alone since ") || strings.Contains(text, "the sum") {
		t.Error(text)
	}
}

func TestLedgerOfOneNode(t *testing.T) {
	var asked string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": answer.Ledger{}})
	}))
	defer web.Close()
	code, _, stderr := freshet(t, "ledger", "--local", "--server", web.URL)
	if code != command.OK || asked != "local=true" {
		t.Errorf("exit code %d, requested %q, errors %s", code, asked, stderr)
	}
}
