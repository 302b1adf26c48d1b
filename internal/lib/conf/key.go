package conf

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// key is one key of the configuration: a value, a list, or a tree that only the file can give.
type key struct {
	path    string // such as "dogstatsd.udp"
	help    string
	restart bool          // a change needs a restart
	veil    veil          // how much of the value is shown
	index   []int         // indexes of the fields that lead to the key, from the outermost struct
	preset  reflect.Value // the default
	flag    []string      // the values on the command line; nil if the flag is not given
}

// collect appends the keys of the struct v. v is a section, and `around` describes this section.
func collect(keys []*key, v reflect.Value, around key) []*key {
	for _, f := range fieldsOf(v.Type()) {
		k := &key{
			path:    join(around.path, f.name),
			help:    f.help,
			restart: around.restart || f.restart,
			veil:    around.veil.of(f.veil),
			index:   append(slices.Clone(around.index), f.index),
			preset:  v.Field(f.index),
		}
		if shapeOf(k.preset.Type()) == section {
			keys = collect(keys, k.preset, *k)
		} else {
			keys = append(keys, k)
		}
	}
	return keys
}

func (k *key) fileOnly() bool { return shapeOf(k.preset.Type()) == tree }

func (k *key) flagName() string { return flagName(k.path) }

func flagName(path string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(path) }

func (k *key) envName(prefix string) string { return envName(prefix, k.path) }

func envName(prefix, path string) string {
	return prefix + "_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// formerPaths returns the paths that the key at `path` had before.
func (s *Schema[T]) formerPaths(path string) (all []string) {
	for before, now := range s.renamed {
		if rest, ok := strings.CutPrefix(path, now); ok && (rest == "" || rest[0] == '.') {
			all = append(all, before+rest)
		}
	}
	return all
}

// Key is the manual's description of one key.
type Key struct {
	Path    string // "dogstatsd.udp"; a key of an element begins with "rules[]." or "tenants.NAME."
	Type    string // such as "duration"
	Default string // as in a file; empty for keys of elements
	Flag    string // "dogstatsd-udp"; Flag and Env are empty if only the file can give the key
	Env     string // such as "FRESHET_DOGSTATSD_UDP"
	Help    string
	Restart bool // a change needs a restart
}

// Keys returns all keys in the order of the struct, each list or map of structs
// followed by the keys of its elements.
func (s *Schema[T]) Keys() []Key {
	var all []Key
	for _, k := range s.keys {
		described := Key{
			Path: k.path, Type: typeName(k.preset.Type()), Default: inline(k.preset), Help: k.help, Restart: k.restart,
		}
		if !k.fileOnly() {
			described.Flag, described.Env = k.flagName(), k.envName(s.env)
		}
		all = append(append(all, described), elements(k.preset.Type(), k.path, k.restart)...)
	}
	return all
}

// elements returns the keys of t's elements, if t is a list or map of structs.
func elements(t reflect.Type, path string, restart bool) (all []Key) {
	switch shapeOf(t) {
	case tree:
		if t.Kind() == reflect.Slice {
			return elements(t.Elem(), path+"[]", restart)
		}
		return elements(t.Elem(), path+".NAME", restart)
	case section:
		for _, f := range fieldsOf(t) {
			inner, ft := join(path, f.name), t.Field(f.index).Type
			if shapeOf(ft) != section {
				all = append(all, Key{Path: inner, Type: typeName(ft), Help: f.help, Restart: restart})
			}
			all = append(all, elements(ft, inner, restart)...)
		}
	}
	return all
}

// EnvTypos returns a sentence for each variable in `environ` ("NAME=value") whose name looks like a
// misspelling, either of a key's variable or of a name in `known`. All other variables are ignored.
func (s *Schema[T]) EnvTypos(environ []string, known ...string) (typos []string) {
	prefix := s.env + "_"
	var names, before []string
	for _, k := range s.keys {
		if !k.fileOnly() {
			names = append(names, strings.TrimPrefix(k.envName(s.env), prefix))
			for _, path := range s.formerPaths(k.path) {
				before = append(before, envName(s.env, path)) // Load reports a variable with a former name
			}
		}
	}
	for _, name := range known {
		names = append(names, strings.TrimPrefix(name, prefix))
	}
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || slices.Contains(names, rest) || slices.Contains(before, name) {
			continue
		}
		if near := Nearest(rest, names); near != "" {
			typos = append(typos,
				fmt.Sprintf("%s: is not the variable of any key, so it has no effect; did you mean %s?", name, prefix+near))
		}
	}
	return typos
}
