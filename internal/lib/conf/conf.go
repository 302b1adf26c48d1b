// Package conf reads a configuration: a Go struct whose keys can be set in a YAML file, in the
// environment and on the command line. All problems are reported at once, each with its place and
// how to fix it.
//
// A key is a field with the tags `yaml:"name" help:"what it is"`. Nested structs are sections. A
// field therefore has a dotted path, from which its other names follow:
//
//	dogstatsd.udp   --dogstatsd-udp   FRESHET_DOGSTATSD_UDP
//
// The file overrides defaults, the environment overrides the file, and flags override the
// environment. Fields are strings, bools, integers, floats, durations (10s, 2d), Bytes (4MiB),
// types that read and write their own text, and lists of all these. Only the file can give lists
// and maps of structs.
//
// The tag `reload:"restart"` on a field or a section says that a change needs a restart; everything
// else can change while the process runs. Diff marks changes that need a restart.
//
// Two tags hide values from everybody but the owner: `show:"secret"` hides the whole value, and
// `show:"url"` hides the passwords and queries of URLs. Shown, Diff, problems and the text of flags hide
// these values; Settings shows everything.
//
// Each section checks its values, and whether they go together: see Validator. The caller decides
// which file is read, and when.
//
// The files, from the top; each uses only names from files below it:
//
//	conf.go     Schema: what can be set
//	load.go     a configuration from file, environment and flags
//	file.go     the contents of the file
//	loader.go   the origins of values, and the problems found
//	diff.go     the differences between two configurations, and a reload's effect
//	setting.go  a configuration for people, with the origin of each value
//	flags.go    a flag for each key
//	key.go      one key, and its names
//	nearest.go  the key that was likely meant
//	node.go     values as they are written in a file
//	problem.go  problems, as people read them
//	types.go    types of values, and how they are read
//	veil.go     secrets, and how they are hidden
//	address.go  addresses of sockets
package conf

import (
	"fmt"
	"reflect"
	"slices"
)

// Schema is the set of keys of the configuration T, with their names, help and defaults. A Schema
// remembers the flags of the command line, so that a file can be loaded again under the same flags.
type Schema[T any] struct {
	env      string // prefix of variables, such as "FRESHET"
	defaults T
	keys     []*key            // the keys, in the order of the struct
	renamed  map[string]string // maps former paths of sections and keys to the present paths
}

// New returns the schema of T. Environment variables begin with `env` and an underscore. Unknown
// variables with that prefix are ignored, since other programs set some: Kubernetes, for example,
// derives variables from the names of services. New panics if a field of T cannot be configured,
// since that is a mistake in the program.
func New[T any](env string, defaults T) *Schema[T] {
	s := &Schema[T]{env: env, defaults: defaults}
	s.keys = collect(nil, reflect.ValueOf(&s.defaults).Elem(), key{})
	s.Keys() // panics if an element of a list or map cannot be configured
	paths := map[string]string{}
	for _, k := range s.keys {
		if k.fileOnly() {
			continue
		}
		if other, taken := paths[k.flagName()]; taken {
			panic(fmt.Sprintf("BUG: conf: %s and %s share the flag --%s", other, k.path, k.flagName()))
		}
		paths[k.flagName()] = k.path
	}
	return s
}

// Renamed records that a section or key had another path in an earlier version. The old path is no
// alias: setting it is a problem, and the text of the problem names the new path.
func (s *Schema[T]) Renamed(before, now string) *Schema[T] {
	if !slices.Contains(pathsOf(nil, reflect.TypeFor[T](), ""), now) {
		panic(fmt.Sprintf("BUG: conf: %s was renamed to %s, which does not exist", before, now))
	}
	if s.renamed == nil {
		s.renamed = map[string]string{}
	}
	s.renamed[before] = now
	return s
}
