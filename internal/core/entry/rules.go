package entry

import "fmt"

// Rules are states of groups of rules of a tenant, after evaluations.
type Rules struct {
	Tenant string
	Groups List // not empty; each item is written by AppendRuleGroup
}

// RuleGroup is the state of a group of rules.
type RuleGroup struct {
	Key   [32]byte // of package rulestate
	State []byte   // encoded by package rulestate; empty if the group is gone
}

// AppendRuleGroup appends an item.
func AppendRuleGroup(l List, g *RuleGroup) List {
	item := append(make([]byte, 0, len(g.Key)+len(g.State)), g.Key[:]...)
	return l.Append(append(item, g.State...))
}

// ParseRuleGroup reads an item of a parsed entry. The state points into the item.
func ParseRuleGroup(item []byte) (g RuleGroup) {
	copy(g.Key[:], item)
	g.State = item[len(g.Key):]
	return g
}

func (r *Rules) append(b []byte) []byte {
	if len(r.Groups) == 0 {
		panic("BUG: an entry without states of rules")
	}
	return append(appendName(b, r.Tenant), r.Groups...)
}

func (r *Rules) parse(from *reader) {
	r.Tenant, r.Groups = from.name(), from.list()
	for item := range r.Groups.All() {
		from.bad = from.bad || len(item) < len(RuleGroup{}.Key)
	}
	from.bad = from.bad || len(r.Groups) == 0
}

// RuleSet sets or deletes a group of rules of a tenant, or deletes a namespace with all its groups. The limits of
// the node that took the request decide whether the group is kept.
type RuleSet struct {
	Tenant     string
	Namespace  string
	Group      string // empty: the namespace is deleted
	MaxTenants int    // see ruleset.Limits
	MaxGroups  int
	MaxRules   int
	MaxBytes   int
	Rules      int    // how many rules Text has
	Text       []byte // YAML of package ruleset; empty if the group is deleted
}

// MaxRuleSet bounds the Text of a RuleSet, in bytes.
const MaxRuleSet = 8 << 20

func (s *RuleSet) append(b []byte) []byte {
	if !s.valid() {
		panic(fmt.Sprintf("BUG: a group %.80q with %d bytes of rules in an entry", s.Group, len(s.Text)))
	}
	b = appendText(appendName(b, s.Tenant), s.Namespace, maxRuleName)
	b = appendText(b, s.Group, maxRuleName)
	for _, n := range [...]int{s.MaxTenants, s.MaxGroups, s.MaxRules, s.MaxBytes, s.Rules} {
		b = appendLimit(b, n)
	}
	return append(b, s.Text...)
}

func (s *RuleSet) parse(r *reader) {
	s.Tenant, s.Namespace, s.Group = r.name(), r.text(maxRuleName), r.text(maxRuleName)
	for _, n := range [...]*int{&s.MaxTenants, &s.MaxGroups, &s.MaxRules, &s.MaxBytes, &s.Rules} {
		*n = r.limit()
	}
	if s.Text = nil; len(r.b) > 0 {
		s.Text = r.cut(len(r.b))
	}
	r.bad = r.bad || !s.valid()
}

func (s *RuleSet) valid() bool {
	return (s.Group != "" || len(s.Text) == 0) && (s.Rules == 0) == (len(s.Text) == 0) && len(s.Text) <= MaxRuleSet
}
