// Package conf reads a configuration: a Go struct whose keys can be set in a
// YAML file, in the environment and on the command line, and whose problems are
// all reported at once, each with the place it came from and the way out.
//
// A key is a field with a `yaml:"name"` tag; nested structs are sections, so
// that a field has a dotted path, and from it the names it goes by:
//
//	dogstatsd.udp   --dogstatsd-udp   FRESHET_DOGSTATSD_UDP
//
// Defaults give way to the file, the file to the environment, the environment
// to flags. Fields are strings, bools, integers, floats, durations (10s, 2d),
// Bytes (4MiB), types that read their own text, and lists of those. Lists and
// maps of structs can be given too, in the file only.
//
// What a value means, and which values go together, is known by whoever owns
// the section: see Validator. Which file is read, and when, is the caller's.
package conf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Validator is a section, or an element of a list or map, that knows which of
// its values make no sense. The keys of its problems are relative to it.
type Validator interface {
	Validate() []Problem
}

// Schema is the set of keys of the configuration T: their names, help and
// defaults. It remembers what the command line said, so that a file can be
// loaded again under the same flags.
type Schema[T any] struct {
	env      string // "FRESHET"
	defaults T
	keys     []*key // in the order of the struct
}

// New returns the schema of T. The environment variables begin with env and an
// underscore; others that do are none of our business: Kubernetes, for one,
// invents variables from the names of services. New panics if T has a field
// that could not be configured, since that is a mistake in the program.
func New[T any](env string, defaults T) *Schema[T] {
	s := &Schema[T]{env: env, defaults: defaults}
	s.keys = collect(nil, reflect.ValueOf(&s.defaults).Elem(), "", nil)
	paths := map[string]string{}
	for _, k := range s.keys {
		if other, taken := paths[k.flagName()]; taken {
			panic(fmt.Sprintf("BUG: conf: %s and %s share the flag --%s", other, k.path, k.flagName()))
		}
		paths[k.flagName()] = k.path
	}
	return s
}

// key is one setting that has a flag and an environment variable.
type key struct {
	path   string // "dogstatsd.udp"
	help   string
	index  []int         // of the field, from the outermost struct
	preset reflect.Value // the default
	flag   []string      // what the command line said; nil if it said nothing
}

// collect appends the keys of the struct v, whose own path is path.
func collect(keys []*key, v reflect.Value, path string, index []int) []*key {
	for _, f := range fieldsOf(v.Type()) {
		k := &key{
			path:   join(path, f.name),
			help:   f.help,
			index:  append(slices.Clone(index), f.index),
			preset: v.Field(f.index),
		}
		switch shapeOf(k.preset.Type()) {
		case scalar, list:
			keys = append(keys, k)
		case section:
			keys = collect(keys, k.preset, k.path, k.index)
		}
	}
	return keys
}

func (k *key) flagName() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.path)
}

func (k *key) envName(prefix string) string {
	return prefix + "_" + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// Load reads the file, unless its name is empty, then the environment by
// lookup (os.LookupEnv), then the flags. Whatever is wrong is in one error, of
// the type Problems. Each call starts from the defaults.
func (s *Schema[T]) Load(file string, lookup func(string) (string, bool)) (T, error) {
	var text []byte
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			cause := err
			if inner := errors.Unwrap(err); inner != nil {
				cause = inner // without the path, which stands before it
			}
			return s.defaults, Problems{{where: file, Text: fmt.Sprintf("read the configuration: %v; name another file, or none to run on defaults", cause)}}
		}
	}
	return s.load(file, text, lookup)
}

func (s *Schema[T]) load(file string, text []byte, lookup func(string) (string, bool)) (T, error) {
	cfg := s.defaults
	root := reflect.ValueOf(&cfg).Elem()
	l := &loader{file: file, keys: pathsOf(nil, root.Type(), ""), origins: map[string]origin{}, failed: map[string]bool{}}
	for _, k := range s.keys {
		l.origins[k.path] = origin{name: k.path, value: strings.TrimSpace(format(k.preset) + " (default)")}
	}
	l.readFile(text, root)
	for _, k := range s.keys {
		v := root.FieldByIndex(k.index)
		if text, ok := lookup(k.envName(s.env)); ok {
			parts := []string{text}
			if shapeOf(v.Type()) == list {
				parts = splitList(text)
			}
			l.readTexts(v, k.path, origin{name: k.envName(s.env), value: text}, parts)
		}
		if k.flag != nil {
			l.readTexts(v, k.path, origin{name: "--" + k.flagName(), value: strings.Join(k.flag, ",")}, k.flag)
		}
	}
	l.validate(root, "")
	if len(l.problems) > 0 {
		// In the order of the file's lines, as the reader will go through it.
		slices.SortStableFunc(l.problems, func(a, b Problem) int { return cmp.Compare(a.line, b.line) })
		return s.defaults, l.problems
	}
	return cfg, nil
}

// loader is one load: where each value came from, and what was wrong.
type loader struct {
	file     string
	keys     []string          // paths of all keys and sections, for suggestions
	origins  map[string]origin // by path
	failed   map[string]bool   // paths whose value could not be read: they hold the default
	problems Problems
}

// origin is where a value came from: a line of the file, or else the flag or
// environment variable; the name of a default is its path.
type origin struct {
	line  int // 0: not the file
	name  string
	value string // as it was written; empty for lists, maps and sections of the file
}

// add notes that the value at path is wrong.
func (l *loader) add(path, text string) {
	if l.failed[path] {
		return // a default that stands in for a broken value is not the reader's mistake
	}
	l.problems = append(l.problems, l.problem(path, text))
}

// fail notes that the value at path could not be read.
func (l *loader) fail(path, text string) {
	l.add(path, text)
	l.failed[path] = true
}

// problem says where the value of path came from. What has no place of its own,
// such as an element's missing key, has that of the element around it.
func (l *loader) problem(path, text string) Problem {
	from, known := l.origins[path]
	for outer := path; !known && outer != ""; from, known = l.origins[outer] {
		outer = outer[:max(strings.LastIndexAny(outer, ".["), 0)]
	}
	p := Problem{Key: path, Text: text, line: from.line, value: from.value, where: cmp.Or(from.name, path)}
	if from.line > 0 {
		p.where = fmt.Sprintf("%s:%d: %s", l.file, from.line, path)
	}
	return p
}

// readTexts sets v, the value of path, from the environment or a flag.
func (l *loader) readTexts(v reflect.Value, path string, from origin, parts []string) {
	l.origins[path] = from
	delete(l.failed, path)
	if shapeOf(v.Type()) == scalar {
		if err := setScalar(v, parts[0]); err != nil {
			l.fail(path, err.Error())
		}
		return
	}
	read := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, part := range parts {
		if err := setScalar(read.Index(i), part); err != nil {
			l.fail(path, fmt.Sprintf("%q %v", part, err))
		}
	}
	v.Set(read)
}

// validate asks v, the value at path, and all that it holds.
func (l *loader) validate(v reflect.Value, path string) {
	if asked, ok := v.Addr().Interface().(Validator); ok {
		for _, p := range asked.Validate() {
			l.add(join(path, p.Key), p.Text)
		}
	}
	switch shapeOf(v.Type()) {
	case section:
		for _, f := range fieldsOf(v.Type()) {
			l.validate(v.Field(f.index), join(path, f.name))
		}
	case tree:
		if v.Kind() == reflect.Slice {
			for i := range v.Len() {
				l.validate(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
			return
		}
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, name := range names {
			element := reflect.New(v.Type().Elem()).Elem() // a map's own elements have no address
			element.Set(v.MapIndex(name))
			l.validate(element, join(path, name.String()))
		}
	}
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Key  string // dotted path; a Validator gives it relative to itself
	Text string // what is wrong and the way out: "exceeds width (10s); set it to 10s or less"

	where string // file, line and key, or the flag or variable
	value string
	line  int // in the file; 0 if the value came from elsewhere
}

func (p Problem) Error() string {
	if p.value == "" {
		return p.where + ": " + p.Text
	}
	return p.where + " = " + p.value + ": " + p.Text
}

// Problems is all that is wrong with a configuration: never empty.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Nearest returns the one of words that word was most likely meant to be, or ""
// if none is close: about one letter in three may differ.
func Nearest(word string, words []string) string {
	nearest, best := "", math.MaxInt
	for _, w := range words {
		if d := distance(word, w); d < best && d <= max(1, (max(len(word), len(w))+1)/3) {
			nearest, best = w, d
		}
	}
	return nearest
}

// distance counts the letters to insert, delete or replace to make b from a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
