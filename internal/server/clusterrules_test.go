package server

import (
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/adapter/rulesets"
	"github.com/freshet-io/freshet/internal/adapter/rulestates"
	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/role/ruler"
	"github.com/freshet-io/freshet/internal/settings"
)

// rules.db has no checksums, so a start may meet senders that make no sense. It goes on without them.
func TestDamagedSendersStopNoStart(t *testing.T) {
	dir, logger := t.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil))
	states, err := rulestates.Open(filepath.Join(dir, "rules.db"), logger)
	if err != nil {
		t.Fatal(err)
	}
	defer states.Close()
	senders := watermark.NewTenant(1000).AppendTo(nil, 1)
	senders[0] ^= 1
	if err := states.Save("a", rulestate.Changes{Senders: senders}); err != nil {
		t.Fatal(err)
	}
	sets, err := rulesets.Open(filepath.Join(dir, "rules"), parser.NewParser(parser.Options{}), logger)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{config: settings.Default(), ruleStates: states, ruleSets: fileSets{sets, nil},
		watermarks: new(watermark.All), logger: logger}
	if err := s.restoreSenders(ruler.Files{"a": rulefiles.Set{}}); err != nil {
		t.Errorf("a start fails: %v", err)
	}
}
