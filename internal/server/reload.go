package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// reload reads the configuration again and applies the changes that need no restart. An invalid
// configuration changes nothing. Each returned change of the configuration says whether it waits for a restart.
func (s *server) reload(ctx context.Context) (answer.Difference, error) {
	s.reloader.mu.Lock()
	defer s.reloader.mu.Unlock()
	d, err := s.applyConfig(ctx)
	if err != nil {
		s.reloader.reloads.WithLabelValues("refused").Inc()
		s.reloader.successful.Set(0)
		s.reloader.refused.Store(true)
		return d, err
	}
	s.reloader.reloads.WithLabelValues("applied").Inc()
	s.reloader.inForce()
	return d, nil
}

var errRestarting = errors.New("the server is restarting, and will read the configuration as it starts")

// applyTime bounds the wait for the end of a window.
const applyTime = 10 * time.Second

func (s *server) applyConfig(ctx context.Context) (d answer.Difference, err error) {
	if err := s.opening.wait(ctx); err != nil {
		return d, err
	}
	if s.restarter.plan != nil { // the plan already lists the sockets for the next image
		return d, errRestarting
	}
	next, err := s.reloader.source.Load()
	if err != nil {
		return d, err
	}
	old := s.inForce()
	d.Changes = conf.Diff(old, next)
	next = old.Reloaded(next)
	constant, err := next.ConstantLabels()
	if err != nil {
		return d, err
	}
	mapper, err := mapping.New(next.Mapping, constant)
	if err != nil {
		return d, err
	}
	access, err := accessOf(next)
	if err != nil {
		return d, err
	}
	operators, err := operatorsOf(next)
	if err != nil {
		return d, err
	}
	rules, err := readRules(next)
	if err != nil {
		return d, err
	}
	prepared, err := s.collector.Prepare(next.DogStatsD, mapper, constant.Get("host"))
	if err != nil {
		return d, err
	}
	warned := s.socketWarnings()
	ctx, cancel := context.WithTimeout(ctx, applyTime)
	defer cancel()
	if err := prepared.Apply(ctx); err != nil {
		return d, err
	}
	// From here on no change can be refused.
	if s.ruler != nil {
		d.Rules = s.ruler.Diff(rules)
	}
	s.log.level.Set(next.Level())
	s.mapper.Store(mapper)
	s.watch.SetBudgets(next.Self.Budgets.Stages())
	s.access.Store(access)
	s.operators.Store(operators)
	s.limiter.Configure(next.Limits, next.DogStatsD.IdleContexts, s.config.Aggregator.UpDownTTL)
	s.reloadRoles(next)
	s.reloadRuler(next, rules)
	s.current.Store(&next)
	if err := s.listeningTold.again(s.writeListening); err != nil {
		s.logger.Error(noListening, "error", err)
	}
	for _, w := range s.socketWarnings() {
		if !slices.Contains(warned, w) {
			s.logger.Warn(w)
		}
	}
	return d, nil
}

// watchReloads reloads at each SIGHUP until ctx is done.
func (s *server) watchReloads(ctx context.Context) error {
	for {
		select {
		case <-s.reloader.asked:
			s.tellReload(s.reload(ctx))
		case <-ctx.Done():
			return nil
		}
	}
}

// tellReload logs the result of a reload.
func (s *server) tellReload(d answer.Difference, err error) {
	logger := s.logger
	if err != nil {
		for _, line := range conf.Lines(err) {
			logger.Error("the configuration was not reloaded; nothing has changed", "problem", line)
		}
		return
	}
	logger.Info("configuration reloaded", "changes", len(d.Changes)+len(d.Rules))
	for _, c := range d.Changes {
		level, takes := slog.LevelInfo, "now"
		if c.Restart {
			level, takes = slog.LevelWarn, "a restart"
		}
		logger.Log(context.Background(), level, "configuration", "change", c.String(), "takes", takes)
	}
	for _, r := range d.Rules {
		logger.Info("rules", "change", r.String(), "takes", "now")
	}
}

// serveReload answers POST /-/reload: 200 with the changes, 400 with the problems.
func (s *server) serveReload(w http.ResponseWriter, request *http.Request) {
	d, err := s.reload(request.Context())
	s.tellReload(d, err)
	if err != nil {
		http.Error(w, "nothing has changed:", http.StatusBadRequest)
		for _, line := range conf.Lines(err) {
			fmt.Fprintln(w, line)
		}
		return
	}
	if len(d.Changes)+len(d.Rules) == 0 {
		fmt.Fprintln(w, "reloaded, nothing has changed")
	}
	for _, c := range d.Changes {
		fmt.Fprint(w, c)
		if c.Restart {
			fmt.Fprint(w, "  (takes a restart)")
		}
		fmt.Fprintln(w)
	}
	for _, r := range d.Rules {
		fmt.Fprintln(w, r)
	}
}
