package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/settings"
)

// fill posts one sample or more to each state.
func fill(l *ledger.Ledger) {
	l.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 1_000_020},
		ledger.Transfer{From: ledger.Received, To: ledger.Malformed, Reason: "no_type", Samples: 15},
		ledger.Transfer{From: ledger.Received, To: ledger.Malformed, Reason: "bad_value", Samples: 5},
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: 1_000_000})
	l.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Restored, Samples: 30}, ledger.Transfer{From: ledger.Restored, To: ledger.Tile, Samples: 30})
	l.Post("default", ledger.Transfer{From: ledger.Window, To: ledger.Tile, Samples: 900_000},
		ledger.Transfer{From: ledger.Window, To: ledger.Late, Reason: "late_gauge", Samples: 2})
	l.Post("default", ledger.Transfer{From: ledger.Tile, To: ledger.Stored, Samples: 800_030})
	l.Note("default", ledger.LateKept, 70)
	l.Datagrams("default", ledger.Datagrams{Read: 40_000, KernelDropped: 123})
	l.Client("default", ledger.PacketsSent, 41_000)
	l.Client("default", ledger.PacketsDropped, 877)
	l.Close(1_795_167_065_000)
}

// bookServer is a server with books and nothing else.
func bookServer(t *testing.T, dir string) *server {
	c := settings.Config{DataDir: dir}
	s := &server{config: c, registry: prometheus.NewRegistry(), logger: slog.New(slog.DiscardHandler), started: time.Unix(1_795_160_000, 0), ledger: ledger.New()}
	if err := s.openLedger(); err != nil {
		t.Fatal(err)
	}
	return s
}

// asTenant answers requests on a tenant's behalf.
func asTenant(name string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r.WithContext(tenant.NewContext(r.Context(), name)))
	}
}

// The command and the server understand each other; what a person sees is in the
// golden file.
func TestLedger(t *testing.T) {
	s := bookServer(t, t.TempDir())
	fill(s.ledger)
	s.previous = &savedBooks{Written: 1_795_159_990_000, Books: s.ledger.Books()}
	web := httptest.NewServer(asTenant("default", s.serveLedger))
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
	if err := json.Unmarshal([]byte(stdout), &a); code != command.OK || err != nil || a.Status != "success" || a.Data.Samples.Received != 1_000_020 {
		t.Errorf("exit code %d, %v, %s%s", code, err, stdout, stderr)
	}
}

// The ledger names the rule by which refused decrements would count.
func TestLedgerNamesTheRuleForDecrements(t *testing.T) {
	s := bookServer(t, t.TempDir())
	web := httptest.NewServer(asTenant("default", s.serveLedger))
	defer web.Close()
	for _, want := range []bool{false, true} {
		code, stdout, stderr := freshet(t, "ledger", "--server", web.URL)
		if code != command.OK || strings.Contains(stdout, "3 go below zero, where a counter cannot: a mapping rule with updown: true") != want {
			t.Errorf("exit %d, %s\n%s", code, stderr, stdout)
		}
		s.ledger.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 3}, ledger.Transfer{From: ledger.Received, To: ledger.Refused, Reason: "negative", Samples: 3})
	}
}

// One tenant does not see another's books, and one without any sees empty ones.
func TestLedgerOfAnotherTenant(t *testing.T) {
	s := bookServer(t, t.TempDir())
	fill(s.ledger)
	s.previous = &savedBooks{Books: s.ledger.Books()}
	w := httptest.NewRecorder()
	asTenant("other", s.serveLedger)(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if body := w.Body.String(); strings.Contains(body, "1000020") || !strings.Contains(body, `"malformed":{}`) {
		t.Error(body)
	}
}

// On a terminal losses and the verdict have colours, the next page lies over the
// last one and says what happened between them.
func TestLedgerOnATerminal(t *testing.T) {
	s := bookServer(t, t.TempDir())
	fill(s.ledger)
	web := httptest.NewServer(asTenant("default", s.serveLedger))
	defer web.Close()
	var out strings.Builder
	l := ledgerView{View: terminal.View{Out: &out, Notes: io.Discard, Columns: 80, Colour: true}, server: apiclient.Server{Address: web.URL}, live: true}
	show := func() {
		t.Helper()
		if err := l.show(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	show()
	s.ledger.Post("default", ledger.Transfer{From: ledger.Tile, To: ledger.Stored, Samples: 50_000}, ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: 7})
	s.ledger.Close(1_795_167_070_000)
	show()
	golden(t, "ledger-terminal.txt", strings.ReplaceAll(out.String(), "\x1b", "ESC"))
}

// The books are on disk within ten seconds, and are final only after a stop.
func TestBooksOutliveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		life := func(want *savedBooks) (s *server, stop func()) {
			s = bookServer(t, dir)
			if got := s.previous; (got == nil) != (want == nil) || got != nil && (got.Final != want.Final || got.Of("default").Samples.Stored != want.Of("default").Samples.Stored) {
				t.Errorf("the process before left %+v, want %+v", got, want)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.keepLedger(ctx) }()
			return s, func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		first, stop := life(nil)
		fill(first.ledger)
		time.Sleep(booksInterval + time.Second)
		_, stopSecond := life(&savedBooks{Final: false, Books: first.ledger.Books()}) // as after kill -9
		stopSecond()
		stop() // what was killed says no more; here it ends last
		third, stopThird := life(&savedBooks{Final: true, Books: first.ledger.Books()})
		if third.previous.Of("default").Samples.Tile != 100_000 {
			t.Errorf("%+v", third.previous)
		}
		stopThird()
		if err := os.WriteFile(third.path(booksFile), []byte("{"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, stopLast := life(nil) // a file that is damaged does not keep a server from starting
		stopLast()
	})
}

func TestLedgerMetrics(t *testing.T) {
	s := bookServer(t, t.TempDir())
	fill(s.ledger)
	const want = `
# HELP freshet_ledger_difference Values that came less those in all states. Other than 0: a bug of ours.
# TYPE freshet_ledger_difference gauge
freshet_ledger_difference{tenant="default"} 0
# HELP freshet_ledger_open_samples Values on the wire that are on their way, in a window or in a tile. Rising without end: the next stage takes nothing.
# TYPE freshet_ledger_open_samples gauge
freshet_ledger_open_samples{state="tile",tenant="default"} 100000
freshet_ledger_open_samples{state="window",tenant="default"} 99998
# HELP freshet_ledger_samples_total Values on the wire by what became of them for good, and why (docs/ledger.md). Rising in another state than stored: data is lost.
# TYPE freshet_ledger_samples_total counter
freshet_ledger_samples_total{reason="",state="stored",tenant="default"} 800030
freshet_ledger_samples_total{reason="bad_value",state="malformed",tenant="default"} 5
freshet_ledger_samples_total{reason="late_gauge",state="late",tenant="default"} 2
freshet_ledger_samples_total{reason="no_type",state="malformed",tenant="default"} 15
`
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "freshet_ledger_difference", "freshet_ledger_open_samples", "freshet_ledger_samples_total"); err != nil {
		t.Error(err)
	}
}

// Every reason that any code posts is in the manual.
func TestReasonsAreExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/ledger.md")
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, file := range []string{"books.go", "../../internal/role/collector/books.go", "../../internal/role/aggregator/books.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^(?:\t|const )reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
			reasons = append(reasons, found[1])
		}
	}
	for reason := range tile.NumReasons {
		reasons = append(reasons, reason.String())
	}
	if len(reasons) < 16 {
		t.Fatalf("found only %q", reasons)
	}
	for _, reason := range reasons {
		if !strings.Contains(string(text), "`"+reason+"`") {
			t.Errorf("docs/ledger.md does not explain %s", reason)
		}
	}
}

// To interrupt it is how one ends it, which is no failure.
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
	l := ledgerView{seen: []answer.Ledger{{Name: "b", Waiting: &answer.Waiting{Samples: 1234, Since: 1_763_679_960_000, Error: "open tsdb/b/10s: not a directory", Refused: true}}}}
	text, err := l.page()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Of those in tiles 1,234 wait for a store since ", ": open tsdb/b/10s: not a directory\n", "as store.pending allows"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	l.seen[0].Waiting.Error = "" // it is at work, as each 10 s
	if text, _ := l.page(); strings.Contains(text, "wait for a store") {
		t.Errorf("a store that is at work is told of\n%s", text)
	}
}
