package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/lib/retry"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/role/ruler"
)

// clusterStates keeps the states of rules in the log of the group, so that a new leader goes on where the last one
// was. Senders are not in it: each node learns of them from the requests in the log.
type clusterStates struct{ group *group.Group }

// leads reports whether this node evaluates the rules. Before all nodes know how states are kept, none does.
func (c clusterStates) leads() bool {
	status := c.group.Status()
	return status.Leads && status.Version.Format >= member.RulesFormat
}

// stateTime bounds the wait for the log.
const stateTime = 10 * time.Second

// Load implements ruler.States.
func (c clusterStates) Load(tenant string) (groups []rulestate.Group, senders []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTime)
	defer cancel()
	states, err := c.group.Rules(ctx, tenant)
	if err != nil {
		return nil, nil, fmt.Errorf("read the states of rules of tenant %s in the log: %w", tenant, err)
	}
	for _, b := range states {
		g, err := rulestate.Decode(b)
		if err != nil {
			return nil, nil, err
		}
		groups = append(groups, g)
	}
	return groups, nil, nil
}

// Save implements ruler.States. A node that no longer leads saves nothing: the next leader evaluates these slots
// again.
func (c clusterStates) Save(tenant string, changes rulestate.Changes) error {
	ctx, cancel := context.WithTimeout(context.Background(), stateTime)
	defer cancel()
	var list entry.List
	flush := func() error {
		if len(list) == 0 {
			return nil
		}
		err := c.group.KeepRules(ctx, tenant, list)
		list = nil
		return err
	}
	add := func(key rulestate.Key, state []byte) error {
		if len(list)+len(state) > entry.TargetSize {
			if err := flush(); err != nil {
				return err
			}
		}
		list = entry.AppendRuleGroup(list, &entry.RuleGroup{Key: key.Hash(), State: state})
		return nil
	}
	var err error
	for i := range changes.Groups {
		err = errors.Join(err, add(changes.Groups[i].Key(), changes.Groups[i].AppendTo(nil)))
	}
	for _, key := range changes.Gone {
		err = errors.Join(err, add(key, nil))
	}
	if err = errors.Join(err, flush()); errors.Is(err, replica.ErrNotLeader) {
		return nil
	}
	return err
}

// restoreSenders gives the watermarks the senders that they had before the restart.
func (s *server) restoreSenders(files ruler.Files) error {
	for _, name := range slices.Concat(slices.Collect(maps.Keys(files)), s.ruleSets.Tenants()) {
		_, senders, err := s.ruleStates.Load(name)
		if err != nil {
			return err
		}
		w := s.watermarks.Watch(name, s.config.Rules.SenderTimeout.Milliseconds())
		if senders == nil {
			continue
		}
		if err := w.Restore(senders, time.Now().UnixMilli()); err != nil { // the pages of the file have no checksums
			s.logger.Error("the senders for which rules wait are damaged: rules wait for senders that are heard again",
				"tenant", name, "error", err)
		}
	}
	return nil
}

// sendersEvery is how often a node saves the senders that it knows. What it forgets by a kill comes again with the
// log.
const sendersEvery = 5 * time.Second

// keepSenders saves the senders until ctx is done.
func (s *server) keepSenders(ctx context.Context) {
	for retry.Wait(ctx, sendersEvery) == nil {
		for _, name := range s.ruleSets.Tenants() { // set by the API meanwhile
			s.watermarks.Watch(name, s.inForce().Rules.SenderTimeout.Milliseconds())
		}
		for name, w := range s.watermarks.All() {
			err := s.ruleStates.Save(name, rulestate.Changes{Senders: w.AppendTo(nil, time.Now().UnixMilli())})
			if err != nil {
				s.logger.Error("the senders for which rules wait cannot be saved", "tenant", name, "error", err)
			}
		}
	}
}

// deliveredThrough returns the time up to which the log has all windows, in Unix milliseconds.
func (s *server) deliveredThrough() int64 {
	g, err := s.member()
	if err != nil {
		return 0
	}
	return s.delivers.through(g.Status().Term, time.Now(), s.inForce().Rules.SenderTimeout)
}

// rulesOfLeader answers questions about rules only at the node that evaluates them. Others would show no alerts.
func (s *server) rulesOfLeader(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/rules", "/api/v1/alerts", "/api/v1/alertmanagers":
			if s.rulesElsewhere(w) {
				return
			}
		}
		api.ServeHTTP(w, r)
	})
}

// rulesElsewhere answers a question about rules if another node evaluates them, and reports whether it did.
func (s *server) rulesElsewhere(w http.ResponseWriter) bool {
	g, err := s.member()
	if err != nil || !s.inCluster() || g.Status().Leads {
		return false
	}
	text := "no node leads now, so none evaluates rules; try again"
	if leader := g.Leader(); leader != "" {
		text = fmt.Sprintf("node %s leads, and evaluates the rules; ask that node", leader)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	// Fails only if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "unavailable", "error": text})
	return true
}
