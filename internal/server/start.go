package server

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/handover"
	"github.com/freshet-io/freshet/internal/adapter/memory"
	"github.com/freshet-io/freshet/internal/settings"
)

// progressTime is how often the log reports the progress of a start.
const progressTime = 5 * time.Second

// settleTimes are the times after a start at which a server frees memory that it needed until then. By the first one,
// requests and samples have come. From the last one on, it works as it will for days.
var settleTimes = [...]time.Duration{2 * time.Second, 10 * time.Second}

// startRoles builds the roles. From then on, the server answers over HTTP.
func (s *server) startRoles() error {
	if err := s.buildRoles(); err != nil {
		s.opening.fail()
		return err
	}
	s.serveHTTP()
	return nil
}

// runOpening opens the stores in use once the journal is replayed, waits until they have the replayed
// requests, and then announces that the server is ready. Meanwhile the collector reads the sockets and
// windows are folded.
func (s *server) runOpening(ctx context.Context, opened func() error) error {
	s.awaitStores(ctx)
	if ctx.Err() == nil {
		s.ready.Store(true)
		close(s.readied)
		if err := opened(); err != nil {
			return err
		}
		if err := memory.FreeStart(); err != nil { // memory that only the start needed
			s.logger.Warn("memory that only the start needed could not be freed", "error", err)
		}
	}
	var settling sync.WaitGroup
	settling.Go(func() { s.settle(ctx) })
	limitGarbage(ctx, usualGarbage(s.config.Roles()))
	<-ctx.Done()
	settling.Wait()
	return nil
}

// settle frees memory that the first seconds after a start need, and later ones do not: the first requests make
// tables of what they answer, and the stacks of all goroutines grow. Without stores it also collects garbage: the heap
// of a collector is small, or has few pointers.
func (s *server) settle(ctx context.Context) {
	free := memory.FreeStart
	if s.has(settings.RoleIngester) {
		free = memory.FreeProgram
	}
	begun := time.Now()
	for _, after := range settleTimes {
		select {
		case <-time.After(after - time.Since(begun)):
		case <-ctx.Done():
			return
		}
		if err := free(); err != nil {
			s.logger.Warn("memory that only the first seconds needed could not be freed", "error", err)
			return
		}
	}
}

// awaitStores opens the stores in use, and waits until they have the replayed requests.
func (s *server) awaitStores(ctx context.Context) {
	opening, end := context.WithCancel(ctx)
	var garbage sync.WaitGroup
	garbage.Go(func() { limitGarbage(opening, openingGarbage(s.memory)) })
	s.openUsed(ctx)
	s.awaitReplays(ctx)
	end()
	garbage.Wait()
}

// awaitReplays waits until the stores have the requests that the aggregator read from its log. It does
// not wait for a store that refuses the requests: queries of the store's tenant then say what they lack.
func (s *server) awaitReplays(ctx context.Context) {
	if s.aggregator == nil {
		return
	}
	for _, tenant := range s.aggregator.Replaying() {
		_ = s.aggregator.Replayed(ctx, tenant)
	}
}

// openUsed opens the stores that were in use before the start, and logs its progress.
func (s *server) openUsed(ctx context.Context) {
	if s.stores == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.stores.OpenUsed(ctx)
	}()
	begun := time.Now()
	for tick := time.NewTicker(progressTime); ; {
		select {
		case <-tick.C:
			p := s.stores.Opening()
			s.logger.Info("not ready yet: stores in use are being opened", "done", p.Done, "of", p.Total,
				"now", strings.Join(p.Now, " "))
			continue
		case <-done:
			tick.Stop()
		}
		break
	}
	if p := s.stores.Opening(); p.Total > 0 && ctx.Err() == nil {
		s.logger.Info("stores in use are open", "stores", p.Total, "broken", len(s.stores.Broken()),
			"took", time.Since(begun).Round(time.Millisecond))
	}
}

// announce tells people and programs the addresses, and that the server is ready.
func (s *server) announce(out io.Writer) error {
	for _, w := range s.socketWarnings() {
		s.logger.Warn(w)
	}
	if err := s.listeningTold.first(s.writeListening); err != nil {
		s.logger.Error(noListening, "error", err) // not fatal: queries work even on a full disk
	}
	if err := handover.Notify(handover.Ready); err != nil {
		s.logger.Warn("could not tell systemd that the server is ready", "error", err)
	}
	s.tellRestarted()
	return s.greet(out)
}
