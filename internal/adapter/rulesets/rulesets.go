// Package rulesets keeps the rules that tenants set by Mimir's API. The rules of a namespace are in one
// file: docs/format/databases.md draws it. A change is on the disk before it is in memory.
package rulesets

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/atomicfile"
)

// Sets has the rules of all tenants. It is safe for concurrent use.
type Sets struct {
	dir    string
	parser parser.Parser
	logger *slog.Logger

	mu      sync.Mutex
	tenants map[string]*set // those with rules now, or since the start
}

// set has the rules of a tenant.
type set struct {
	mu         sync.Mutex // held while a file is written, so that files and memory are the same
	namespaces map[string]*namespace
}

// namespace has the groups of a namespace, in the order in which they came. It is not changed.
type namespace struct {
	groups  []ruleset.Group
	invalid map[string]bool // groups that this version cannot evaluate, by name
	bytes   int             // of the file
}

// file is what a file holds.
type file struct {
	Namespace string          `yaml:"namespace"`
	Groups    []ruleset.Group `yaml:"groups"`
}

// Open reads the rules of all tenants below `dir`. It renames a file that it cannot read, and logs that.
// A group that is no longer valid, as after an upgrade, is kept, but not evaluated.
func Open(dir string, p parser.Parser, logger *slog.Logger) (*Sets, error) {
	s := &Sets{dir: dir, parser: p, logger: logger, tenants: map[string]*set{}}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the rules set by the API: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || tenant.Check(e.Name()) != nil {
			continue
		}
		if err := s.openTenant(e.Name()); err != nil {
			return nil, fmt.Errorf("read the rules set by the API: %w", err)
		}
	}
	return s, nil
}

// openTenant reads the files of a tenant.
func (s *Sets) openTenant(tenant string) error {
	paths, err := filepath.Glob(filepath.Join(s.dir, tenant, "*"+suffix))
	if err != nil {
		return err
	}
	all := map[string]*namespace{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, n, err := s.read(filepath.Base(path), text, tenant)
		if err == nil {
			all[name] = n
			continue
		}
		s.logger.Error("a file with rules set by the API is damaged and was moved aside: set its groups again",
			"tenant", tenant, "damaged_file", path+".damaged", "cause", err)
		if err := os.Rename(path, path+".damaged"); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		s.tenants[tenant] = &set{namespaces: all}
	}
	return nil
}

// read reads the file of a namespace.
func (s *Sets) read(base string, text []byte, tenant string) (name string, n *namespace, err error) {
	f, lines, err := parse(base, text)
	if err != nil {
		return "", nil, err
	}
	n = &namespace{groups: f.Groups, invalid: map[string]bool{}, bytes: len(text)}
	for i := range f.Groups {
		g := &f.Groups[i]
		if problems := g.Check(lines[i].Rules, tenant, s.parser); len(problems) > 0 {
			n.invalid[g.Name] = true
			s.logger.Error("a group of rules set by the API is not evaluated, since it is not valid: set it again, or "+
				"delete it", "tenant", tenant, "namespace", f.Namespace, "group", g.Name, "problem", problems[0])
		}
	}
	return f.Namespace, n, nil
}

// parse reads the file of a namespace, and where its groups stand in it.
func parse(base string, text []byte) (f file, lines []rulefmt.RuleGroupNode, err error) {
	var nodes struct {
		Groups []rulefmt.RuleGroupNode `yaml:"groups"`
	}
	if problems := ruleset.Decode(text, &f, &nodes); len(problems) > 0 {
		return f, nil, ruleset.Mistakes(problems)
	}
	if base != fileOf(f.Namespace) {
		return f, nil, fmt.Errorf("the file is of the namespace %.80q, whose file is %s", f.Namespace, fileOf(f.Namespace))
	}
	if err := ruleset.CheckNamespace(f.Namespace); err != nil {
		return f, nil, err
	}
	known := map[string]bool{}
	for _, g := range f.Groups {
		if known[g.Name] {
			return f, nil, fmt.Errorf("the group %.80q is there twice", g.Name)
		}
		known[g.Name] = true
	}
	return f, nodes.Groups, nil
}

// Check reads all files below `dir`, and returns an error if one is damaged. There may be none.
func Check(dir string) error {
	return eachFile(dir, func(path string) error {
		text, err := os.ReadFile(path)
		if err == nil {
			_, _, err = parse(filepath.Base(path), text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

// CheckTakeover returns an error unless a cluster can keep the groups in the files below `dir`, which may not exist. It
// passes over damaged files, which Open moves aside.
func CheckTakeover(dir string) error {
	into := ruleset.NewKept()
	return eachFile(dir, func(path string) error {
		of := filepath.Base(filepath.Dir(path))
		if path != filepath.Join(dir, of, filepath.Base(path)) || tenant.Check(of) != nil {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, _, err := parse(filepath.Base(path), text)
		if err == nil {
			_, err = Fold(into, of, f.Namespace, f.Groups)
			return err
		}
		return nil
	})
}

// Fold adds groups of a namespace to those that the nodes of a cluster keep. It leaves out groups without rules or
// without a name, which evaluate nothing and which no checkpoint may have, and returns their names.
func Fold(into *ruleset.Kept, tenant, namespace string, groups []ruleset.Group) (left []string, err error) {
	const most = math.MaxInt
	for i := range groups {
		if len(groups[i].Rules) == 0 || groups[i].Name == "" {
			left = append(left, groups[i].Name)
			continue
		}
		text, err := groups[i].Text(namespace)
		if err != nil {
			return nil, err
		}
		e := text.Entry(tenant)
		e.MaxTenants, e.MaxGroups, e.MaxRules, e.MaxBytes = most, most, most, most
		if err := into.Fold(&e); err != nil {
			return nil, fmt.Errorf("this machine has more rules set by the API than a cluster keeps: %w: start the server "+
				"without a cluster, and delete groups by the API", err)
		}
	}
	return left, nil
}

// Tenants returns the tenants that have rules, or had some since the start.
func (s *Sets) Tenants() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.tenants))
}

// of returns the set of a tenant, or nil.
func (s *Sets) of(tenant string) *set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenants[tenant]
}

// current returns a tenant's namespaces, which are not changed.
func (s *Sets) current(tenant string) map[string]*namespace {
	set := s.of(tenant)
	if set == nil {
		return nil
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.namespaces
}

// List returns the groups of a tenant's namespaces, or those of one if `only` is not empty.
func (s *Sets) List(tenant, only string) map[string][]ruleset.Group {
	all := map[string][]ruleset.Group{}
	for name, n := range s.current(tenant) {
		if only == "" || name == only {
			all[name] = n.groups
		}
	}
	return all
}

// Group returns one group.
func (s *Sets) Group(tenant, namespace, name string) (ruleset.Group, error) {
	n := s.current(tenant)[namespace]
	if i := n.index(name); i >= 0 {
		return n.groups[i], nil
	}
	return ruleset.Group{}, ruleset.ErrNoGroup
}

// index returns the index of a group, or -1. A namespace that does not exist has no groups.
func (n *namespace) index(name string) int {
	if n == nil {
		return -1
	}
	return slices.IndexFunc(n.groups, func(g ruleset.Group) bool { return g.Name == name })
}

// Rules returns a tenant's rules for evaluation, by namespace, and how many groups are left out since
// they are not valid.
func (s *Sets) Rules(tenant string) (all map[string]*rulefmt.RuleGroups, invalid int) {
	all = map[string]*rulefmt.RuleGroups{}
	for name, n := range s.current(tenant) {
		groups := &rulefmt.RuleGroups{}
		for i := range n.groups {
			if g := &n.groups[i]; !n.invalid[g.Name] {
				groups.Groups = append(groups.Groups, g.Evaluated())
			}
		}
		all[name] = groups
		invalid += len(n.invalid)
	}
	return all, invalid
}

// Put adds a group that ruleset.Parse has checked, or replaces the one with its name. A group that breaks a
// limit is an error of the type ruleset.Mistakes.
func (s *Sets) Put(tenant, name string, g ruleset.Group, limits ruleset.Limits) error {
	if err := ruleset.CheckNamespace(name); err != nil {
		return err
	}
	set, err := s.make(tenant, limits)
	if err != nil {
		return err
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	next := file{Namespace: name}
	if n := set.namespaces[name]; n != nil {
		next.Groups = slices.Clone(n.groups)
		if i := n.index(g.Name); i >= 0 {
			next.Groups[i] = g
		} else {
			next.Groups = append(next.Groups, g)
		}
	} else {
		next.Groups = []ruleset.Group{g}
	}
	return s.write(set, tenant, next, g.Name, &limits)
}

// make returns the set of a tenant, and makes it if there is none.
func (s *Sets) make(tenant string, limits ruleset.Limits) (*set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tenants[tenant]
	if of == nil {
		if n := len(s.tenants); n >= limits.MaxTenants {
			return nil, ruleset.Mistakes{fmt.Sprintf("%d tenants have set rules since the start, the limit of "+
				"rules.api.max_tenants; raise it", n)}
		}
		of = &set{namespaces: map[string]*namespace{}}
		s.tenants[tenant] = of
	}
	return of, nil
}

// write writes the file of a namespace that has another group now, or one less. `changed` is the group's
// name. `limits` is nil if the group is gone. The caller holds set.mu.
func (s *Sets) write(set *set, tenant string, next file, changed string, limits *ruleset.Limits) error {
	text, err := yaml.Marshal(next)
	if err != nil {
		return fmt.Errorf("write the rules of a namespace: %w", err)
	}
	n := &namespace{groups: next.Groups, invalid: map[string]bool{}, bytes: len(text)}
	all := maps.Clone(set.namespaces)
	if old := all[next.Namespace]; old != nil {
		n.invalid = maps.Clone(old.invalid)
		delete(n.invalid, changed)
	}
	all[next.Namespace] = n
	if limits != nil {
		if err := limits.Check(sizeOf(all)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(s.dir, tenant), dirMode); err != nil {
		return fmt.Errorf("write the rules of a namespace: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(s.dir, tenant, fileOf(next.Namespace)), text); err != nil {
		return fmt.Errorf("write the rules of a namespace: %w", err)
	}
	set.namespaces = all
	return nil
}

// sizeOf returns how much a tenant has set.
func sizeOf(all map[string]*namespace) (s ruleset.Size) {
	for _, n := range all {
		s.Groups += len(n.groups)
		s.Bytes += n.bytes
		for i := range n.groups {
			s.Rules += len(n.groups[i].Rules)
		}
	}
	return s
}

// Delete removes a namespace with its groups.
func (s *Sets) Delete(tenant, name string) error {
	set := s.of(tenant)
	if set == nil {
		return ruleset.ErrNoNamespace
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.namespaces[name] == nil {
		return ruleset.ErrNoNamespace
	}
	return s.remove(set, tenant, name)
}

// DeleteGroup removes a group, and its namespace if it was the last one there.
func (s *Sets) DeleteGroup(tenant, name, group string) error {
	set := s.of(tenant)
	if set == nil {
		return ruleset.ErrNoGroup
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	n := set.namespaces[name]
	i := n.index(group)
	switch {
	case i < 0:
		return ruleset.ErrNoGroup
	case len(n.groups) == 1:
		return s.remove(set, tenant, name)
	}
	next := file{Namespace: name, Groups: slices.Delete(slices.Clone(n.groups), i, i+1)}
	return s.write(set, tenant, next, group, nil)
}

// remove removes the file of a namespace. The caller holds set.mu.
func (s *Sets) remove(set *set, tenant, name string) error {
	if err := atomicfile.Remove(filepath.Join(s.dir, tenant, fileOf(name))); err != nil {
		return fmt.Errorf("delete the rules of a namespace: %w", err)
	}
	all := maps.Clone(set.namespaces)
	delete(all, name)
	set.namespaces = all
	return nil
}

// Snapshot copies all files into `to`, which must not exist. Without rules it makes nothing.
func (s *Sets) Snapshot(to string) error {
	for _, tenant := range s.Tenants() {
		set := s.of(tenant)
		set.mu.Lock()
		err := eachFile(filepath.Join(s.dir, tenant), func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			dir := filepath.Join(to, tenant)
			if err := os.MkdirAll(dir, dirMode); err != nil {
				return err
			}
			return atomicfile.Write(filepath.Join(dir, filepath.Base(path)), text)
		})
		set.mu.Unlock()
		if err != nil {
			return fmt.Errorf("copy the rules set by the API: %w", err)
		}
	}
	return nil
}

// eachFile calls f with the path of each file of a namespace below `dir`, which may not exist.
func eachFile(dir string, f func(path string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == dir:
			return nil
		case err != nil || d.IsDir() || !strings.HasSuffix(path, suffix):
			return err
		}
		return f(path)
	})
}

// Remove removes the files of namespaces below `dir`, which may not exist. It leaves what Open has moved aside.
func Remove(dir string) error { return eachFile(dir, os.Remove) }

const (
	suffix  = ".yaml" // of names of files of namespaces
	dirMode = 0o750   // only the owner writes, and the group may read
)

// fileOf returns the name of the file of a namespace. Namespaces may have names that files cannot have.
func fileOf(namespace string) string {
	sum := sha256.Sum256([]byte(namespace))
	return hex.EncodeToString(sum[:]) + suffix
}
