package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"

	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/rulestates"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/role/ruler"
	"github.com/freshet-io/freshet/internal/settings"
)

// readRules reads and checks the rule files, and the files for connections to Alertmanagers.
func readRules(c settings.Config) (ruler.Files, error) {
	files, err := ruler.ReadFiles(c.Rules, c.HTTP.Tenant, promapi.NewParser(c.Query, func() {}))
	if err := errors.Join(err, ruler.CheckFiles(c.Rules)); err != nil {
		return nil, conf.Mistake(err)
	}
	return files, nil
}

// openRuler builds the ruler, which evaluates rules.
func (s *server) openRuler() error {
	files, err := readRules(s.config)
	if err != nil {
		return err
	}
	if s.ruleStates, err = rulestates.Open(s.path("rules.db"), s.logger); err != nil {
		return err
	}
	if err := s.openRuleSets(); err != nil {
		return err
	}
	o := ruler.Options{
		Config: s.config.Rules, Files: files, Sets: s.ruleSets,
		Engine: promapi.Own{Engine: s.engine}, Parser: s.engine.Parser(), Queryable: s.querier,
		Distributor: s.distributor, Watermarks: s.watermarks, Windows: s.collector.Through,
		States:      s.ruleStates,
		ExternalURL: s.ownURL(), Registry: s.registry, Logger: s.logger,
	}
	if g, is := s.aggregator.(*group.Group); is && s.inCluster() {
		o.States, o.Leads, o.Windows = clusterStates{g}, clusterStates{g}.leads, s.deliveredThrough
		o.Shared = s.ruleSets.(clusterSets)
		if err := s.restoreSenders(files); err != nil {
			return err
		}
	}
	s.ruler, err = ruler.New(o)
	return err
}

// ownURL returns a URL at which this server may be reached from other machines.
func (s *server) ownURL() *url.URL {
	h := s.http[0]
	host, port, err := net.SplitHostPort(h.addr())
	if err != nil {
		panic("BUG: " + err.Error()) // the address is bound
	}
	if ip := net.ParseIP(host); ip != nil && (ip.IsUnspecified() || ip.IsLoopback()) {
		name, _ := os.Hostname()
		host = cmp.Or(name, host)
	}
	return &url.URL{Scheme: h.scheme, Host: net.JoinHostPort(host, port)}
}

// runRuler evaluates rules until ctx is done.
func (s *server) runRuler(ctx context.Context) error {
	var keeping sync.WaitGroup
	defer keeping.Wait()
	if s.inCluster() {
		keeping.Go(func() { s.keepSenders(ctx) })
	}
	return s.ruler.Run(ctx)
}

// reloadRuler puts rules in force that readRules has read.
func (s *server) reloadRuler(next settings.Config, files ruler.Files) {
	if s.ruler == nil {
		return
	}
	if err := s.ruler.Reload(next.Rules, files); err != nil {
		s.logger.Error("not all rules were reloaded; reload again", "error", err)
	}
}

// serveRules says what the rules of the request's tenant wait for.
func (s *server) serveRules(w http.ResponseWriter, r *http.Request) {
	name := tenantOf(r)
	if s.rulesElsewhere(w) {
		return
	}
	var of *ruler.Tenant
	if s.ruler != nil {
		of = s.ruler.Retriever(name)
	}
	w.Header().Set("Content-Type", "application/json")
	// Fails only if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": of.Status(name)})
}

// rulesOf returns the rules of a tenant.
func (s *server) rulesOf(tenant string) promapi.TenantRules {
	if s.ruler == nil {
		return promapi.NoRules(tenant)
	}
	return s.ruler.Retriever(tenant)
}
