package ruleset

import (
	"bytes"
	"sync"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/core/entry"
)

// Parsed is a group that was read from a Text.
type Parsed struct {
	Group
	Namespace string
	Problem   string // why this version cannot evaluate it; empty if it can
}

// Parser reads Texts. It remembers those of the last call for each tenant, so that a change of one group reads only
// that one. It is safe for concurrent use.
type Parser struct {
	parser  parser.Parser
	invalid func(tenant, namespace, group, problem string)

	mu sync.Mutex
	of map[string]map[[2]string]parsedText
}

type parsedText struct {
	yaml   []byte
	parsed Parsed
}

// NewParser returns a Parser that checks expressions with p. It calls `invalid` with each group that it reads and
// that has a problem.
func NewParser(p parser.Parser, invalid func(tenant, namespace, group, problem string)) *Parser {
	return &Parser{parser: p, invalid: invalid, of: map[string]map[[2]string]parsedText{}}
}

// Parse returns the groups of a tenant.
func (p *Parser) Parse(tenant string, all []Text) (groups []Parsed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := make(map[[2]string]parsedText, len(all))
	for i := range all {
		t := &all[i]
		key := [2]string{t.Namespace, t.Name}
		one, known := p.of[tenant][key]
		if !known || !bytes.Equal(one.yaml, t.YAML) {
			one = parsedText{t.YAML, p.read(tenant, t)}
		}
		next[key] = one
		groups = append(groups, one.parsed)
	}
	if p.of[tenant] = next; len(next) == 0 {
		delete(p.of, tenant)
	}
	return groups
}

func (p *Parser) read(tenant string, t *Text) Parsed {
	x := Parsed{Namespace: t.Namespace}
	var lines rulefmt.RuleGroupNode
	problems := Decode(t.YAML, &x.Group, &lines)
	if len(problems) == 0 {
		problems = x.Check(lines.Rules, tenant, p.parser)
	}
	if x.Name = t.Name; len(problems) > 0 {
		x.Problem = problems[0]
		p.invalid(tenant, t.Namespace, t.Name, x.Problem)
	}
	return x
}

// Text returns a group of a namespace as the nodes of a cluster keep it.
func (g *Group) Text(namespace string) (Text, error) {
	text, err := yaml.Marshal(g)
	return Text{namespace, g.Name, len(g.Rules), text}, err
}

// Entry returns the entry that sets the group, without limits.
func (t *Text) Entry(tenant string) entry.RuleSet {
	return entry.RuleSet{Tenant: tenant, Namespace: t.Namespace, Group: t.Name, Rules: t.Rules, Text: t.YAML}
}
