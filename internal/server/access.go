package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// guard passes allowed requests to h, with the tenant in the context.
func (s *server) guard(e exposure, h http.Handler) http.Handler {
	switch e {
	case probes, pages:
		return h
	case operates:
		return s.forOperators(h.ServeHTTP)
	case readsHere:
		h = s.forOperators(h.ServeHTTP)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e == operatesMany && s.access.Load() != nil {
			s.forOperators(h.ServeHTTP)(w, r)
			return
		}
		if err := s.foreign(e, r); err != nil {
			s.refuse(w, err)
			return
		}
		if e != writes && s.allowOrigin(w, r) {
			return
		}
		if e == splits && s.operator(r) {
			h.ServeHTTP(w, r)
			return
		}
		grant, err := s.admit(e, r)
		if err != nil {
			s.refuse(w, err)
			return
		}
		h.ServeHTTP(w, r.WithContext(grant.NewContext(r.Context())))
	})
}

// admit decides whether a request may act for the tenant that it names.
func (s *server) admit(e exposure, r *http.Request) (tenant.Grant, error) {
	claim, access := claimOf(r), s.access.Load()
	if s.vouched(r, claim) {
		access = tenant.ByHeader(nil) // an operator may name any tenant in the header
	}
	grant, err := s.grant(access, claim, e == writes)
	if err == nil && s.namesOwn(claim, grant) {
		err = s.notOperator(r)
	}
	return grant, err
}

// namesOwn reports whether the tenant header names the tenant of Freshet's own metrics. Any client may
// set the header, and that tenant shows the whole process.
func (s *server) namesOwn(c tenant.Claim, g tenant.Grant) bool {
	return g.Tenant == tenant.Own && len(c.Headers) > 0 && s.inForce().Self.Metrics
}

// grant decides whether a request with this claim may act for its tenant, by any protocol. `write` says
// whether the request writes or reads.
func (s *server) grant(access *tenant.Access, c tenant.Claim, write bool) (tenant.Grant, error) {
	grant, err := access.Grant(c)
	switch {
	case err != nil:
	case write && !grant.Write:
		err = fmt.Errorf("the token of %q may only read; give it may: both in http.tenants_file", grant.Tenant)
	case !write && !grant.Read:
		err = fmt.Errorf("the token of %q may only write; give it may: both in http.tenants_file", grant.Tenant)
	case write && access.Trusts() && s.namesOwn(c, grant):
		err = fmt.Errorf("the tenant %q is reserved for Freshet's own metrics; name another tenant in X-Scope-OrgID, "+
			"or set self.metrics to false", tenant.Own)
	}
	return grant, err
}

// refuse answers a refused request with the reason, in the form of the Prometheus API: its clients show
// the reason to users.
func (s *server) refuse(w http.ResponseWriter, err error) {
	status, kind, reason := http.StatusForbidden, "forbidden", reasonOf(err)
	if errors.Is(err, tenant.ErrNoToken) {
		status, kind, reason = http.StatusUnauthorized, "unauthorized", reasonUnauthorized
		w.Header().Set("WWW-Authenticate", `Bearer realm="freshet"`)
	}
	s.refused.WithLabelValues(reason).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// This fails only if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": kind, "error": err.Error()})
}

// openAccess reads the rights of clients, and registers the metric of refused requests.
func (s *server) openAccess() error {
	s.refused = promauto.With(s.registry).NewCounterVec(prometheus.CounterOpts{Name: "freshet_http_refused_requests_total",
		Help: "Requests refused, by reason. unauthorized: no known token; forbidden: another tenant, or a missing " +
			"right; operator: only operators may make the request; foreign_page: a web page of another origin; host: a " +
			"name missing in http.hosts. Rising: a token is out of date, a name is missing in http.hosts, or an intruder " +
			"tries."},
		[]string{"reason"})
	for _, reason := range []string{reasonUnauthorized, reasonForbidden, reasonOperator, reasonForeignPage, reasonHost} {
		s.refused.WithLabelValues(reason)
	}
	access, err := accessOf(s.config)
	s.access.Store(access)
	return err
}

// accessOf returns the rights of clients under a configuration: which clients may send requests, and
// for which tenants. nil means that every client may send requests, for the tenant of the address.
func accessOf(c settings.Config) (*tenant.Access, error) {
	switch h := c.HTTP; {
	case h.TenantsFile != "":
		text, err := os.ReadFile(h.TenantsFile)
		if err != nil {
			return nil, conf.Mistake(fmt.Errorf("http.tenants_file: %w; name the file with the tenants' tokens, or leave "+
				"the key empty", err))
		}
		access, err := tenant.ByTokens(h.TenantsFile, text)
		if err != nil {
			return nil, conf.Mistake(err)
		}
		return access, nil
	case h.AllowUnknownTenants:
		return tenant.ByHeader(nil), nil
	case h.TrustTenantHeader:
		return tenant.ByHeader(tenantsOf(c)), nil
	}
	return nil, nil
}

// tenantsOf returns the tenants that the configuration names.
func tenantsOf(c settings.Config) []string {
	all := append(c.DogStatsD.Tenants(), c.HTTP.Tenant)
	for _, l := range c.HTTP.Listeners {
		all = append(all, l.Tenant)
	}
	for name := range c.Limits.Tenants {
		all = append(all, name)
	}
	for name := range c.Distributor.Tenants {
		all = append(all, name)
	}
	return all
}
