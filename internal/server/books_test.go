package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
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

// bookServer returns a server with books and nothing else.
func bookServer(t *testing.T, dir string) *server {
	c := settings.Config{DataDir: dir}
	s := &server{
		config: c, registry: prometheus.NewRegistry(), logger: slog.New(slog.DiscardHandler),
		started: time.Unix(1_795_160_000, 0), ledger: ledger.New(),
	}
	if err := s.openLedger(); err != nil {
		t.Fatal(err)
	}
	return s
}

// asTenant wraps a handler so that its requests act for a tenant.
func asTenant(name string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r.WithContext(tenant.NewContext(r.Context(), name)))
	}
}

// A tenant does not see the books of another tenant. A tenant without books sees empty books.
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

// The books are on disk within ten seconds, and are final only after a stop.
func TestBooksOutliveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		life := func(want *savedBooks) (s *server, stop func()) {
			s = bookServer(t, dir)
			if got := s.previous; (got == nil) != (want == nil) || got != nil &&
				(got.Final != want.Final || got.Of("default").Samples.Stored != want.Of("default").Samples.Stored) {
				t.Errorf("the previous process left %+v, want %+v", got, want)
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
		_, stopSecond := life(&savedBooks{Final: false, Books: first.ledger.Books()}) // as after kill -9: not final
		stopSecond()
		stop() // ends the first server; a real kill would have ended it earlier
		third, stopThird := life(&savedBooks{Final: true, Books: first.ledger.Books()})
		if third.previous.Of("default").Samples.Tile != 100_000 {
			t.Errorf("got %+v", third.previous)
		}
		stopThird()
		if err := os.WriteFile(third.path(booksFile), []byte("{"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, stopLast := life(nil) // a server starts in spite of a damaged file
		stopLast()
	})
}

func TestLedgerMetrics(t *testing.T) {
	s := bookServer(t, t.TempDir())
	fill(s.ledger)
	const want = `
# HELP freshet_ledger_difference Values received minus those in all states. Anything but 0: a bug in Freshet.
# TYPE freshet_ledger_difference gauge
freshet_ledger_difference{tenant="default"} 0
# HELP freshet_ledger_open_samples Values received that are still in a window or a tile. ` +
		`Rising without end: the next stage accepts nothing.
# TYPE freshet_ledger_open_samples gauge
freshet_ledger_open_samples{state="tile",tenant="default"} 100000
freshet_ledger_open_samples{state="window",tenant="default"} 99998
# HELP freshet_ledger_samples_total Values received, by their final state and why (docs/ledger.md). ` +
		`Rising in any state but stored: data is lost.
# TYPE freshet_ledger_samples_total counter
freshet_ledger_samples_total{reason="",state="stored",tenant="default"} 800030
freshet_ledger_samples_total{reason="bad_value",state="malformed",tenant="default"} 5
freshet_ledger_samples_total{reason="late_gauge",state="late",tenant="default"} 2
freshet_ledger_samples_total{reason="no_type",state="malformed",tenant="default"} 15
`
	err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "freshet_ledger_difference",
		"freshet_ledger_open_samples", "freshet_ledger_samples_total")
	if err != nil {
		t.Error(err)
	}
}

// The manual explains every reason that the code posts.
func TestReasonsAreExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/ledger.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^(?:\t|const )reason\w+\s+= "(\w+)"`)
	var reasons []string
	for _, file := range []string{
		"books.go", "../../internal/role/collector/books.go", "../../internal/tiling/books.go",
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range declared.FindAllStringSubmatch(string(source), -1) {
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
