package conf

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Load reads the file, unless its name is empty, then the environment with lookup (os.LookupEnv),
// then the flags. The error has the type Problems and holds everything that is wrong. Each call
// starts from the defaults.
func (s *Schema[T]) Load(file string, lookup func(string) (string, bool)) (T, error) {
	text, err := ReadFile(file)
	if err != nil {
		return s.defaults, err
	}
	cfg, _, err := s.LoadText(file, text, lookup)
	return cfg, err
}

// ReadFile returns the text of a configuration file, or nothing if its name is empty. The error has
// the type Problems.
func ReadFile(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		cause := err
		if inner := errors.Unwrap(err); inner != nil {
			cause = inner // the error without the path, which the problem already names
		}
		return nil,
			Problems{{
				where: file, Text: fmt.Sprintf("read the configuration: %v; name another file, or none to run on defaults", cause),
			}}
	}
	return text, nil
}

// LoadText is Load for the text of a file. It also returns the origin of each key's value.
func (s *Schema[T]) LoadText(file string, text []byte, lookup func(string) (string, bool)) (T, Origins, error) {
	cfg := s.defaults
	root := reflect.ValueOf(&cfg).Elem()
	l := &loader{
		file: file, env: s.env, keys: pathsOf(nil, root.Type(), ""), renamed: s.renamed, origins: map[string]origin{},
		failed: map[string]bool{},
	}
	for _, k := range s.keys {
		if !k.fileOnly() {
			l.origins[k.path] = origin{name: k.path, value: strings.TrimSpace(format(k.preset) + " (default)")}
		}
	}
	l.readFile(text, root)
	for _, k := range s.keys {
		if k.fileOnly() {
			continue
		}
		for _, before := range s.formerPaths(k.path) {
			if name := envName(s.env, before); isSet(lookup, name) {
				l.problems = append(l.problems, Problem{Key: k.path, where: name, Text: renamedTo(k.envName(s.env))})
			}
		}
		v := root.FieldByIndex(k.index)
		if text, ok := lookup(k.envName(s.env)); ok {
			parts := []string{text}
			if shapeOf(v.Type()) == list {
				parts = splitList(text)
			}
			l.readTexts(v, k.path, origin{name: k.envName(s.env), value: k.veil.show(text)}, parts, k.veil)
		}
		if k.flag != nil {
			l.readTexts(v, k.path, origin{name: "--" + k.flagName(), value: k.veil.show(strings.Join(k.flag, ","))}, k.flag,
				k.veil)
		}
	}
	l.validate(root, "")
	if len(l.problems) > 0 {
		// Sort by line, since people work through the file from top to bottom.
		slices.SortStableFunc(l.problems, func(a, b Problem) int { return cmp.Compare(a.line, b.line) })
		return s.defaults, nil, l.problems
	}
	from := Origins{}
	for _, k := range s.keys {
		if o, known := l.origins[k.path]; known && o.line > 0 {
			from[k.path] = fmt.Sprintf("%s:%d", file, o.line)
		} else if known && o.name != k.path {
			from[k.path] = o.name
		}
	}
	return cfg, from, nil
}

func isSet(lookup func(string) (string, bool), name string) bool {
	_, set := lookup(name)
	return set
}

// readTexts sets v, the value at `path`, from the environment or a flag.
func (l *loader) readTexts(v reflect.Value, path string, from origin, parts []string, veil veil) {
	l.origins[path] = from
	delete(l.failed, path)
	if shapeOf(v.Type()) == scalar {
		if err := setScalar(v, parts[0]); err != nil {
			l.fail(path, err.Error())
		} else if veil.written(parts[0]) {
			l.fail(path, hiddenProblem)
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

// validate calls the validators of v, the value at `path`, and of everything in it.
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
		for _, name := range sortedKeys(v) {
			element := reflect.New(v.Type().Elem()).Elem() // an element of a map has no address
			element.Set(v.MapIndex(name))
			l.validate(element, join(path, name.String()))
		}
	}
}
