package server

import (
	"context"

	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/settings"
)

// parts returns what runs, beginning with the part that stops last: a part stops after those below
// it, since they hand over to it. They start together, so that the collector reads while the
// aggregator opens. opened is called when the server is ready.
func (s *server) parts(opened func() error) []run.Part {
	open := func(ctx context.Context) error { return s.runOpening(ctx, opened) }
	all := []struct {
		run.Part
		has bool // given the roles and the configuration
	}{
		{run.Part{Name: "traces", Run: s.tracing.Run}, true},
		{run.Part{Name: "ledger", Run: s.keepLedger}, true},
		{run.Part{Name: "forward", Run: s.runForwarders, After: s.opening.opened}, s.has(settings.RoleForwarder)},
		{run.Part{Name: "aggregator", Run: s.runWindows}, true},
		{run.Part{Name: "ingester", Run: s.runIngester, After: s.opening.opened}, s.has(settings.RoleIngester)},
		{run.Part{Name: "stores", Run: s.tendStores, After: s.opening.opened}, s.has(settings.RoleIngester)},
		{run.Part{Name: "restart", Run: s.replaceImage}, true},
		{run.Part{Name: "catalogue", Run: s.forgetNames}, true},
		{run.Part{Name: "sockets", Run: s.keepBooked}, true},
		{run.Part{Name: "collector", Run: s.runCollector, After: s.mayRead()}, true},
		{run.Part{Name: "opening", Run: open, After: s.opening.opened}, true},
		{run.Part{Name: "own metrics", Run: s.runScraper, After: s.opening.opened}, s.has(settings.RoleScraper)},
		{run.Part{Name: "reload", Run: s.watchReloads, After: s.opening.opened}, true},
		{run.Part{Name: "restart signal", Run: s.watchRestarts}, true},
		{run.Part{Name: "otlp", Run: s.runOTLP, After: s.answering()}, s.otlp != nil},
		{run.Part{Name: "http", Run: s.runHTTP}, true},
		{run.Part{Name: "operators", Run: s.runOperatorSocket}, s.operatorSocket != nil},
		{run.Part{Name: "prober", Run: s.runProber, After: s.readied}, s.has(settings.RoleProber)},
		{run.Part{Name: "recorder", Run: s.recorder.Run}, true}, // stops first: a request for a record delays no other part
	}
	var parts []run.Part
	for _, p := range all {
		if p.has {
			parts = append(parts, p.Part)
		}
	}
	return parts
}

// runWindows starts the roles. Then the aggregator takes windows until ctx is done, or what stands in
// for it.
func (s *server) runWindows(ctx context.Context) error {
	if err := s.startRoles(); err != nil {
		return err
	}
	if s.has(settings.RoleAggregator) {
		return s.runAggregator(ctx)
	}
	return s.runDiscarding(ctx)
}

func (s *server) runHTTP(ctx context.Context) error {
	defer s.ready.Store(false)
	return s.http.run(ctx, s.config.Drain)
}

func (s *server) runCollector(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.restarter.notReading)()
	return s.collector.Run(ctx)
}
