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
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/role/ruler"
)

// ruleSets are the rules that tenants set by the API: those of clusterSets, or fileSets. The errors are Mistakes,
// ErrNoGroup and ErrNoNamespace of package ruleset. With any other error, the rules cannot be read or changed now.
type ruleSets interface {
	ruler.Sets

	// List returns the groups of a tenant's namespaces, or those of one if `only` is not empty.
	List(ctx context.Context, tenant, only string) (map[string][]ruleset.Group, error)
	Group(ctx context.Context, tenant, namespace, name string) (ruleset.Group, error)
	// Put adds a group that ruleset.Parse has checked, or replaces the one with its name.
	Put(ctx context.Context, tenant, namespace string, g ruleset.Group, limits ruleset.Limits) error
	// Delete removes a namespace with its groups. The last group that DeleteGroup removes takes its namespace along.
	Delete(ctx context.Context, tenant, namespace string) error
	DeleteGroup(ctx context.Context, tenant, namespace, name string) error
}

// openRuleSets opens the rules that tenants have set by the API.
func (s *server) openRuleSets() error {
	if g, is := s.aggregator.(*group.Group); is && s.inCluster() {
		s.ruleSets = s.newClusterSets(g, s.engine.Parser())
		return nil
	}
	sets, err := rulesets.Open(s.path("rules"), s.engine.Parser(), s.logger)
	s.ruleFiles, s.ruleSets = sets, fileSets{sets, s.applyRules}
	return err
}

// fileSets are the files of one machine. A change is in force when it is answered.
type fileSets struct {
	*rulesets.Sets
	apply func(tenant string) error
}

func (s *server) applyRules(tenant string) error { return s.ruler.Apply(tenant) }

// List implements ruleSets.
func (f fileSets) List(_ context.Context, tenant, only string) (map[string][]ruleset.Group, error) {
	return f.Sets.List(tenant, only), nil
}

// Group implements ruleSets.
func (f fileSets) Group(_ context.Context, tenant, namespace, name string) (ruleset.Group, error) {
	return f.Sets.Group(tenant, namespace, name)
}

// Put implements ruleSets.
func (f fileSets) Put(_ context.Context, tenant, namespace string, g ruleset.Group, l ruleset.Limits) error {
	return f.changed(tenant, f.Sets.Put(tenant, namespace, g, l))
}

// Delete implements ruleSets.
func (f fileSets) Delete(_ context.Context, tenant, namespace string) error {
	return f.changed(tenant, f.Sets.Delete(tenant, namespace))
}

// DeleteGroup implements ruleSets.
func (f fileSets) DeleteGroup(_ context.Context, tenant, namespace, name string) error {
	return f.changed(tenant, f.Sets.DeleteGroup(tenant, namespace, name))
}

// changed puts changed rules in force. `err` says why they have not changed.
func (f fileSets) changed(tenant string, err error) error {
	if err != nil {
		return err
	}
	return f.apply(tenant)
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
	if s.ruleFiles == nil && len(kept) > 0 {
		s.logger.Error("the data directory has files of rules that were set by the API, but this process does not evaluate "+
			"them: set them again at a server that does, and remove the directory `rules`", "files", len(kept))
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
	const why = "this process evaluates no rules, so it takes none; ask a server with the role all"
	return func(w http.ResponseWriter, r *http.Request) {
		if s.ruleSets == nil {
			http.Error(w, why, http.StatusNotImplemented)
			return
		}
		answer(w, r)
	}
}

func (s *server) listRuleSets(w http.ResponseWriter, r *http.Request) {
	all, err := s.ruleSets.List(r.Context(), tenantOf(r), r.PathValue("namespace"))
	switch {
	case err != nil:
		s.ruleSetError(w, r, err)
	case len(all) == 0:
		http.Error(w, "no rule groups found", http.StatusNotFound)
	default:
		answerYAML(w, all)
	}
}

func (s *server) getRuleSet(w http.ResponseWriter, r *http.Request) {
	g, err := s.ruleSets.Group(r.Context(), tenantOf(r), r.PathValue("namespace"), r.PathValue("group"))
	if err != nil {
		s.ruleSetError(w, r, err)
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
		err = s.ruleSets.Put(r.Context(), tenant, namespace, g, limits)
	}
	s.ruleSetChanged(w, r, err)
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
	s.ruleSetChanged(w, r, s.ruleSets.Delete(r.Context(), tenantOf(r), r.PathValue("namespace")))
}

func (s *server) deleteRuleSet(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.PathValue("namespace"), r.PathValue("group")
	s.ruleSetChanged(w, r, s.ruleSets.DeleteGroup(r.Context(), tenantOf(r), namespace, name))
}

// ruleSetChanged answers a request that changed rules. `err` says why they have not changed.
func (s *server) ruleSetChanged(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		s.ruleSetError(w, r, err)
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

// ruleSetError answers a request that failed.
func (s *server) ruleSetError(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, ruleset.ErrMistakes):
		s.ruleSetAPI.refused.Inc()
		status = http.StatusBadRequest
	case errors.Is(err, ruleset.ErrNoGroup), errors.Is(err, ruleset.ErrNoNamespace):
		status = http.StatusNotFound
	case s.inCluster():
		status = http.StatusServiceUnavailable
	default:
		s.logger.Error("rules set by the API cannot be stored or put in force", "tenant", tenantOf(r), "error", err)
	}
	http.Error(w, err.Error(), status)
}
