package server

import (
	"context"

	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/settings"
)

// parts returns the parts of the process. They stop from the bottom up: a part stops after all
// parts below it in the list, since those hand their data to it. All parts start together, so that
// the collector reads while the aggregator opens. `opened` is called when the server is ready.
func (s *server) parts(opened func() error) []run.Part {
	open := func(ctx context.Context) error { return s.runOpening(ctx, opened) }
	all := []struct {
		run.Part
		role   string // the role of the part; empty if every process has the part
		absent bool   // no work for the part under this configuration or system
	}{
		{Part: run.Part{Name: "traces", Run: s.tracing.Run}},
		{Part: run.Part{Name: "disk", Run: s.watchDisk}},
		{Part: run.Part{Name: "ledger", Run: s.keepLedger}},
		{Part: run.Part{Name: "forward", Run: s.runForwarders, After: s.opening.opened}, role: settings.RoleForwarder},
		{Part: run.Part{Name: "nodes", Run: s.runNodes}, absent: !s.inCluster()},
		{Part: run.Part{Name: "pins", Run: s.pinLogs}, absent: s.config.Cluster.Node == ""},
		{Part: run.Part{Name: "log of the leader", Run: s.watchLog, After: s.opening.opened},
			absent: s.config.Cluster.Node == ""},
		{Part: run.Part{Name: "copies", Run: s.runCopies, After: s.opening.opened}, absent: s.config.Cluster.Node == ""},
		{Part: run.Part{Name: "watch of nodes", Run: s.watchNodes, After: s.opening.opened},
			absent: s.config.Cluster.Node == ""},
		{Part: run.Part{Name: "healing", Run: s.watchHealing, After: s.opening.opened},
			absent: s.config.Cluster.Node == ""},
		{Part: run.Part{Name: "limits", Run: s.shareLimits, After: s.opening.opened}, absent: !s.sharesLimits()},
		{Part: run.Part{Name: "books of nodes", Run: s.watchBooks, After: s.opening.opened},
			absent: s.config.Cluster.Node == ""},
		{Part: run.Part{Name: "gateway", Run: s.runRelay, After: s.opening.opened}, role: settings.RoleGateway},
		{Part: run.Part{Name: "aggregator", Run: s.runWindows}},
		{Part: run.Part{Name: "ingester", Run: s.runIngester, After: s.opening.opened}, role: settings.RoleIngester},
		{Part: run.Part{Name: "stores", Run: s.tendStores, After: s.opening.opened}, role: settings.RoleIngester},
		{Part: run.Part{Name: "saved heads", Run: s.saveHeads, After: s.readied}, role: settings.RoleIngester},
		{Part: run.Part{Name: "scrub", Run: s.runScrub, After: s.readied}, role: settings.RoleIngester,
			absent: s.config.Store.Scrub == 0},
		{Part: run.Part{Name: "imports", Run: s.runImports, After: s.opening.opened}, role: settings.RoleIngester,
			absent: s.config.Cluster.Node == ""},
		{Part: run.Part{Name: "restart", Run: s.replaceImage}},
		{Part: run.Part{Name: "catalogue", Run: s.forgetNames}},
		{Part: run.Part{Name: "sockets", Run: s.keepBooked}},
		{Part: run.Part{Name: "collector", Run: s.runCollector, After: s.mayRead()}},
		{Part: run.Part{Name: "pods", Run: s.runPods}, absent: s.pods == nil},
		{Part: run.Part{Name: "opening", Run: open, After: s.opening.opened}},
		{Part: run.Part{Name: "own metrics", Run: s.runScraper, After: s.opening.opened}, role: settings.RoleScraper},
		{Part: run.Part{Name: "rules", Run: s.runRuler, After: s.readied}, role: settings.RoleRuler},
		{Part: run.Part{Name: "reload", Run: s.watchReloads, After: s.opening.opened}},
		{Part: run.Part{Name: "restart signal", Run: s.watchRestarts}},
		{Part: run.Part{Name: "otlp", Run: s.runOTLP, After: s.answering()}, absent: s.otlp == nil},
		{Part: run.Part{Name: "http", Run: s.runHTTP}},
		{Part: run.Part{Name: "operators", Run: s.runOperatorSocket}, absent: s.operatorSocket == nil},
		{Part: run.Part{Name: "prober", Run: s.runProber, After: s.readied}, role: settings.RoleProber},
		// The recorder stops first. Otherwise a running request for a record would delay the stop of the
		// parts above it.
		{Part: run.Part{Name: "recorder", Run: s.recorder.Run}},
	}
	var parts []run.Part
	for _, p := range all {
		if !p.absent && (p.role == "" || s.has(p.role)) {
			parts = append(parts, p.Part)
		}
	}
	return parts
}

// runWindows builds the roles. Then the aggregator, or its stand-in, accepts windows until ctx is done.
func (s *server) runWindows(ctx context.Context) error {
	err := s.heal(ctx)
	if err == nil {
		err = s.join(ctx)
	}
	if err == nil {
		err = s.fillAgain(ctx)
	}
	if err != nil {
		s.opening.fail()
		return err
	}
	if err := s.startRoles(); err != nil {
		return err
	}
	switch {
	case s.has(settings.RoleAggregator):
		return s.runAggregator(ctx)
	case s.inCluster():
		return s.runPushing(ctx)
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
