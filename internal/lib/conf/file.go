package conf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readFile copies the values of the file into `root`. It walks the YAML nodes one by one: the YAML
// library would stop at the first duplicate key and give no line numbers of values.
func (l *loader) readFile(text []byte, root reflect.Value) {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := documents.Decode(&document); err != nil {
		if !errors.Is(err, io.EOF) { // an empty file is valid and sets nothing
			l.syntax(err)
		}
		return
	}
	l.read(document.Content[0], root, "", plainly)
	var second yaml.Node
	if err := documents.Decode(&second); err == nil {
		l.addLine(second.Line, "a second document begins here; keep one and remove the line with ---")
	} else if !errors.Is(err, io.EOF) {
		l.syntax(err)
	}
}

var syntaxLine = regexp.MustCompile(`^yaml: line (\d+): `)

// syntax reports the errors of the YAML library.
func (l *loader) syntax(err error) {
	text := err.Error()
	if found := syntaxLine.FindStringSubmatch(text); found != nil {
		line, _ := strconv.Atoi(found[1])
		l.addLine(line, "is not YAML: "+text[len(found[0]):])
		return
	}
	l.problems = append(l.problems, Problem{where: l.file, Text: "is not YAML: " + strings.TrimPrefix(text, "yaml: ")})
}

func (l *loader) addLine(line int, text string) {
	l.problems = append(l.problems, Problem{where: fmt.Sprintf("%s:%d", l.file, line), line: line, Text: text})
}

// read sets v, the value at `path`, from `node`. A key without a value keeps the default, so that
// all keys of a section may be commented out. Nested aliases cannot take much time, since each
// alias is read for one field and the struct has a fixed depth.
func (l *loader) read(node *yaml.Node, v reflect.Value, path string, veil veil) {
	line := node.Line
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	l.origins[path] = origin{line: line}
	switch shapeOf(v.Type()) {
	case scalar:
		if node.Kind != yaml.ScalarNode {
			l.fail(path, "is "+describe(node)+"; write one value")
			return
		}
		l.origins[path] = origin{line: line, value: shorten(veil.show(node.Value))}
		if err := setScalar(v, node.Value); err != nil {
			l.fail(path, err.Error())
		} else if veil.written(node.Value) {
			l.fail(path, hiddenProblem)
		}
	case section:
		l.eachPair(node, path, func(name string, key, value *yaml.Node) {
			for _, f := range fieldsOf(v.Type()) {
				if f.name == name {
					l.read(value, v.Field(f.index), join(path, name), veil.of(f.veil))
					return
				}
			}
			l.unknown(key, value, path, v.Type())
		})
	case list, tree:
		if v.Kind() == reflect.Map {
			read := reflect.MakeMap(v.Type())
			l.eachPair(node, path, func(name string, _, value *yaml.Node) {
				element := reflect.New(v.Type().Elem()).Elem()
				l.read(value, element, join(path, name), veil)
				read.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), element)
			})
			v.Set(read)
			return
		}
		if node.Kind != yaml.SequenceNode {
			l.fail(path, "is "+describe(node)+"; write a list: [a, b]")
			return
		}
		read := reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content))
		for i, element := range node.Content {
			l.read(element, read.Index(i), fmt.Sprintf("%s[%d]", path, i), veil)
		}
		v.Set(read)
	}
}

// eachPair calls `do` once for each key of `node`, which should be a mapping.
func (l *loader) eachPair(node *yaml.Node, path string, do func(name string, key, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		if path == "" {
			l.addLine(node.Line, "is "+describe(node)+"; write keys and values, one a line: data_dir: ./data")
			return
		}
		l.fail(path, "is "+describe(node)+"; write its keys below it, indented")
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if first, given := lines[key.Value]; given {
			l.addLine(key.Line,
				fmt.Sprintf("%s: is given a second time; keep this one or the one in line %d", join(path, key.Value), first))
			continue
		}
		lines[key.Value] = key.Line
		do(key.Value, key, value)
	}
}

// unknown reports a key that the section `t` at `path` does not have. It also names the key that was
// likely meant: a key of this section, a key of the same name in another section, or the key whose
// flag or variable has this name.
func (l *loader) unknown(key, value *yaml.Node, path string, t reflect.Type) {
	full := join(path, shorten(key.Value))
	if now, renamed := l.renamed[full]; renamed {
		l.addLine(key.Line, full+": "+renamedTo(now))
		return
	}
	text := full
	// The unknown key may be a misspelt secret, so its value must not be shown.
	secret := slices.ContainsFunc(fieldsOf(t), func(f field) bool { return f.veil != plainly })
	if value.Kind == yaml.ScalarNode && value.Value != "" && !secret {
		text += " = " + shorten(value.Value)
	}
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	text += ": is not a key; "
	if near := Nearest(key.Value, names); near != "" {
		l.addLine(key.Line, text+"did you mean "+join(path, near)+"?")
		return
	}
	for _, known := range l.keys {
		if strings.HasSuffix(known, "."+key.Value) {
			l.addLine(key.Line, text+"did you mean "+known+"?")
			return
		}
	}
	var flags []string
	paths := map[string]string{}
	for _, known := range l.keys {
		flags = append(flags, flagName(known))
		paths[flagName(known)] = known
	}
	as := strings.TrimPrefix(strings.ToLower(flagName(key.Value)), strings.ToLower(l.env)+"-")
	as = strings.TrimPrefix(as, "--")
	if meant := paths[Nearest(as, flags)]; path == "" && strings.Contains(meant, ".") {
		l.addLine(key.Line, text+"did you mean "+meant+"? In a file it stands below its section")
		return
	}
	l.addLine(key.Line, text+"there are "+strings.Join(names, ", "))
}

func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a section with keys"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "one value"
	}
}
