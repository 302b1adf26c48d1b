package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/role/gateway"
	"github.com/freshet-io/freshet/internal/role/group"
)

// clusterSets has the rules that tenants set by the API, in the log of the group. Each node answers from its own
// state, and hands changes to the leader.
type clusterSets struct {
	group   *group.Group
	gateway *gateway.Gateway
	parser  *ruleset.Parser
}

func (s *server) newClusterSets(g *group.Group, p parser.Parser) clusterSets {
	return clusterSets{g, s.gateway, ruleset.NewParser(p, func(tenant, namespace, group, problem string) {
		s.logger.Error("a group of rules set by the API is not evaluated, since it is not valid: set it again, or delete it",
			"tenant", tenant, "namespace", namespace, "group", group, "problem", problem)
	})}
}

// Current implements ruler.Shared.
func (c clusterSets) Current() error { return c.current(context.Background()) }

// current waits until this node has every change that was acknowledged before the call. The tenant "" has no stores,
// which rules need not wait for.
func (c clusterSets) current(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stateTime)
	defer cancel()
	if err := c.group.Barrier(ctx, ""); err != nil {
		return fmt.Errorf("rules set a moment ago may be missing, since this node lags behind the others or knows no "+
			"leader: %w", err)
	}
	return nil
}

// Changed implements ruler.Shared.
func (c clusterSets) Changed(since uint64) (tenants []string, now uint64) {
	return c.group.RuleSets().Changed(since)
}

// Tenants implements ruler.Sets.
func (c clusterSets) Tenants() []string { return c.group.RuleSets().Tenants() }

// Rules implements ruler.Sets.
func (c clusterSets) Rules(tenant string) (set map[string]*rulefmt.RuleGroups, invalid int) {
	set = map[string]*rulefmt.RuleGroups{}
	for _, g := range c.groups(tenant) {
		if set[g.Namespace] == nil {
			set[g.Namespace] = &rulefmt.RuleGroups{}
		}
		if g.Problem != "" {
			invalid++
			continue
		}
		of := set[g.Namespace]
		of.Groups = append(of.Groups, g.Evaluated())
	}
	return set, invalid
}

func (c clusterSets) groups(tenant string) []ruleset.Parsed {
	return c.parser.Parse(tenant, c.group.RuleSets().Of(tenant))
}

// List implements ruleSets.
func (c clusterSets) List(ctx context.Context, tenant, only string) (map[string][]ruleset.Group, error) {
	if err := c.current(ctx); err != nil {
		return nil, err
	}
	all := map[string][]ruleset.Group{}
	for _, g := range c.groups(tenant) {
		if only == "" || g.Namespace == only {
			all[g.Namespace] = append(all[g.Namespace], g.Group)
		}
	}
	return all, nil
}

// Group implements ruleSets.
func (c clusterSets) Group(ctx context.Context, tenant, namespace, name string) (ruleset.Group, error) {
	if err := c.current(ctx); err != nil {
		return ruleset.Group{}, err
	}
	for _, g := range c.groups(tenant) {
		if g.Namespace == namespace && g.Name == name {
			return g.Group, nil
		}
	}
	return ruleset.Group{}, ruleset.ErrNoGroup
}

// Put implements ruleSets. The log decides about the limits, since two nodes may take requests at the same time.
func (c clusterSets) Put(ctx context.Context, tenant, namespace string, g ruleset.Group, l ruleset.Limits) error {
	if err := ruleset.CheckNamespace(namespace); err != nil {
		return err
	}
	text, err := g.Text(namespace)
	if err != nil {
		return err
	}
	if len(text.YAML) > entry.MaxRuleSet {
		return ruleset.Mistakes{fmt.Sprintf("the group has %d bytes, but a cluster takes at most %d; split it",
			len(text.YAML), entry.MaxRuleSet)}
	}
	e := text.Entry(tenant)
	e.MaxTenants, e.MaxGroups, e.MaxRules, e.MaxBytes = l.MaxTenants, l.MaxGroups, l.MaxRules, int(l.MaxBytes)
	return c.change(ctx, e)
}

// Delete implements ruleSets.
func (c clusterSets) Delete(ctx context.Context, tenant, namespace string) error {
	if !ruleset.IsName(namespace) {
		return ruleset.ErrNoNamespace
	}
	return c.change(ctx, entry.RuleSet{Tenant: tenant, Namespace: namespace})
}

// DeleteGroup implements ruleSets.
func (c clusterSets) DeleteGroup(ctx context.Context, tenant, namespace, group string) error {
	if !ruleset.IsName(namespace) || !ruleset.IsName(group) || group == "" {
		return ruleset.ErrNoGroup
	}
	return c.change(ctx, entry.RuleSet{Tenant: tenant, Namespace: namespace, Group: group})
}

// change hands a change to the leader, and waits until it is in the log. A change whose answer was lost is made
// again.
func (c clusterSets) change(ctx context.Context, set entry.RuleSet) error {
	_, err := c.gateway.Write(ctx, &entry.Entry{Kind: entry.KindRuleSet, RuleSet: set})
	isGone := errors.Is(err, ruleset.ErrNoGroup) || errors.Is(err, ruleset.ErrNoNamespace)
	switch {
	case isGone && errors.Is(err, member.ErrUnknown):
		return nil // the try whose answer was lost has deleted it
	case errors.Is(err, member.ErrOlder):
		return fmt.Errorf("%w: upgrade all nodes, and wait for cluster.upgrade_after", err)
	}
	return err
}
