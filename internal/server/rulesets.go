package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/adapter/rulesets"
	"github.com/freshet-io/freshet/internal/core/ruleset"
)

// openRuleSets reads the rules that tenants have set by the API. A node of a cluster takes none, since the
// other nodes would not have them.
func (s *server) openRuleSets() (sets *rulesets.Sets, err error) {
	if s.inCluster() {
		return new(rulesets.Sets), nil
	}
	s.ruleSets, err = rulesets.Open(s.path("rules"), s.engine.Parser(), s.logger)
	return s.ruleSets, err
}

// ruleSetAPI is what requests of Mimir's API of rules share. Its clients go by the statuses and the texts.
type ruleSetAPI struct {
	slots   chan struct{} // held while a request is read and checked, which may take much memory
	refused prometheus.Counter
}

const (
	ruleSetSlots = 16
	slotPatience = 10 * time.Second // how long a request waits for a slot
)

// serveRuleSets registers the API, below /prometheus like Mimir, and without it for data sources whose URL
// is the address of this server.
func (s *server) serveRuleSets(mux *routes) {
	kept, _ := filepath.Glob(s.path("rules", "*", "*.yaml")) // the pattern is valid
	if s.ruleSets == nil && len(kept) > 0 {
		s.logger.Error("the data directory has rules that were set by the API, but this process does not evaluate them: "+
			"make rule files of them", "files", len(kept))
	}
	s.ruleSetAPI.slots = make(chan struct{}, ruleSetSlots)
	s.ruleSetAPI.refused = promauto.With(s.registry).NewCounter(prometheus.CounterOpts{
		Name: "freshet_rules_api_refused_total",
		Help: "Requests to set rules that were refused: mistakes in a group, a limit of rules.api, or too many at once. " +
			"Rising: read the answers, which say why."})
	for _, prefix := range []string{"", "/prometheus"} {
		all := prefix + "/config/v1/rules"
		for pattern, answer := range map[string]func(http.ResponseWriter, *http.Request){
			"GET " + all:                             s.listRuleSets,
			"GET " + all + "/{namespace}":            s.listRuleSets,
			"GET " + all + "/{namespace}/{group}":    s.getRuleSet,
			"POST " + all + "/{namespace}":           s.setRuleSet,
			"DELETE " + all + "/{namespace}":         s.deleteRuleSets,
			"DELETE " + all + "/{namespace}/{group}": s.deleteRuleSet,
		} {
			mux.HandleFunc(pattern, s.ifEvaluated(answer))
		}
	}
}

// ifEvaluated passes requests on if this process evaluates rules that are set by the API.
func (s *server) ifEvaluated(answer http.HandlerFunc) http.HandlerFunc {
	why := "this process evaluates no rules, so it takes none; ask a server with the role all"
	if s.inCluster() {
		why = "a cluster takes no rules by the API"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if s.ruleSets == nil {
			http.Error(w, why, http.StatusNotImplemented)
			return
		}
		answer(w, r)
	}
}

func (s *server) listRuleSets(w http.ResponseWriter, r *http.Request) {
	all := s.ruleSets.List(tenantOf(r), r.PathValue("namespace"))
	if len(all) == 0 {
		http.Error(w, "no rule groups found", http.StatusNotFound)
		return
	}
	answerYAML(w, all)
}

func (s *server) getRuleSet(w http.ResponseWriter, r *http.Request) {
	g, err := s.ruleSets.Group(tenantOf(r), r.PathValue("namespace"), r.PathValue("group"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	answerYAML(w, g)
}

func answerYAML(w http.ResponseWriter, what any) {
	text, err := yaml.Marshal(what)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(text) // fails only if the client is gone
}

func (s *server) setRuleSet(w http.ResponseWriter, r *http.Request) {
	if !s.ruleSetAPI.enter(r) {
		s.ruleSetAPI.refused.Inc()
		http.Error(w, "too many requests set rules at once; try again later", http.StatusServiceUnavailable)
		return
	}
	defer func() { <-s.ruleSetAPI.slots }()
	limits, tenant, namespace := s.inForce().Rules.API, tenantOf(r), r.PathValue("namespace")
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limits.MaxBytes)))
	if err != nil {
		s.refuseRuleSet(w, err, limits)
		return
	}
	g, err := ruleset.Parse(text, tenant, s.engine.Parser())
	if err == nil && s.ruler.HasFile(tenant, namespace) {
		err = ruleset.Mistakes{fmt.Sprintf("the namespace %.200q has the name of a rule file; rename it", namespace)}
	}
	if err == nil {
		err = s.ruleSets.Put(tenant, namespace, g, limits)
	}
	if _, is := errors.AsType[ruleset.Mistakes](err); is {
		s.ruleSetAPI.refused.Inc()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.ruleSetChanged(w, tenant, err)
}

// enter waits for a slot, and reports whether it got one.
func (a *ruleSetAPI) enter(r *http.Request) bool {
	ctx, cancel := context.WithTimeout(r.Context(), slotPatience)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuseRuleSet answers a request whose body cannot be read, or is too large.
func (s *server) refuseRuleSet(w http.ResponseWriter, err error, limits ruleset.Limits) {
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		s.ruleSetAPI.refused.Inc()
		http.Error(w, fmt.Sprintf("the group has more than the %s of rules.api.max_bytes; split it, or raise the limit",
			limits.MaxBytes), http.StatusRequestEntityTooLarge)
		return
	}
	http.Error(w, err.Error(), http.StatusBadRequest)
}

func (s *server) deleteRuleSets(w http.ResponseWriter, r *http.Request) {
	tenant := tenantOf(r)
	s.ruleSetChanged(w, tenant, s.ruleSets.Delete(tenant, r.PathValue("namespace")))
}

func (s *server) deleteRuleSet(w http.ResponseWriter, r *http.Request) {
	tenant := tenantOf(r)
	s.ruleSetChanged(w, tenant, s.ruleSets.DeleteGroup(tenant, r.PathValue("namespace"), r.PathValue("group")))
}

// ruleSetChanged puts changed rules in force, and answers. `err` says why they have not changed.
func (s *server) ruleSetChanged(w http.ResponseWriter, tenant string, err error) {
	if errors.Is(err, rulesets.ErrNoGroup) || errors.Is(err, rulesets.ErrNoNamespace) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	if err == nil {
		err = s.ruler.Apply(tenant)
	}
	if err != nil {
		s.logger.Error("rules set by the API cannot be stored or put in force", "tenant", tenant, "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	// Fails only if the client is gone.
	_ = json.NewEncoder(w).Encode(struct {
		Status    string `json:"status"`
		Data      any    `json:"data"`
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
	}{Status: "success"})
}
