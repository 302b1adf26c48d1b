package server

import (
	"encoding/binary"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/settings"
)

// The newer one of the two metas of events.db is damaged, so bbolt goes on with the older one, and the events of the
// last write are gone. The next write makes both metas whole again. The node must still know that it lacks events.
func TestLostEventsAreRemembered(t *testing.T) {
	dir := t.TempDir()
	start := func() *server {
		t.Helper()
		s := &server{config: settings.Default(), registry: prometheus.NewRegistry(),
			logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
		s.config.DataDir = dir
		s.config.Cluster.Nodes = []settings.NodeAddress{{Node: "a"}}
		if err := s.openEventLog(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	write := func(s *server, title string) {
		t.Helper()
		one := event.Event{Tenant: "a", Time: 1, Title: title}
		if err := s.events.Append(t.Context(), []event.Event{one}); err != nil {
			t.Fatal(err)
		}
	}
	stop := func(s *server) {
		t.Helper()
		if err := s.events.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := start()
	write(s, "first")
	write(s, "second")
	stop(s)

	path := s.path(eventsFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const meta, tx, sum = 16, 48, 56 // offsets in a page, and in a meta
	page := os.Getpagesize()
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[i*page+meta+tx:]) }
	newer := 0
	if number(1) > number(0) {
		newer = 1
	}
	b[newer*page+meta+sum] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = start()
	if s.eventDamage.Load() == nil {
		t.Fatal("the damaged meta is not found")
	}
	write(s, "third")
	stop(s)
	s = start()
	defer stop(s)
	if s.eventDamage.Load() == nil {
		t.Error("after a write and a restart, the node takes its events for all")
	}
}
