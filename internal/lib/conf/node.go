package conf

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// nodeOf returns v as a file would have it, except for what the veil hides. Elements of lists and
// maps omit zero fields, since a missing key means zero there.
func nodeOf(v reflect.Value, veil veil) *yaml.Node {
	switch shapeOf(v.Type()) {
	case scalar:
		return scalarNode(v, veil)
	case list:
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			node.Content = append(node.Content, scalarNode(v.Index(i), veil))
		}
		return node
	case section:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range fieldsOf(v.Type()) {
			if value := v.Field(f.index); !value.IsZero() {
				node.Content = append(node.Content, textNode(f.name), nodeOf(value, veil.of(f.veil)))
			}
		}
		return node
	}
	if v.Kind() == reflect.Slice {
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			node.Content = append(node.Content, nodeOf(v.Index(i), veil))
		}
		return node
	}
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range sortedKeys(v) {
		node.Content = append(node.Content, textNode(name.String()), nodeOf(v.MapIndex(name), veil))
	}
	return node
}

// scalarNode returns the node of a scalar. Only texts that need quotes get them.
func scalarNode(v reflect.Value, veil veil) *yaml.Node {
	text := format(v)
	if shown := veil.show(text); shown != text {
		return textNode(shown)
	}
	switch value := v.Interface().(type) {
	case OptionalInt:
		if !value.given {
			return textNode("")
		}
	case time.Duration, encoding.TextMarshaler:
		return textNode(text)
	}
	if v.Kind() == reflect.String {
		return textNode(text)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text}
}

func textNode(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsFunc(text,
		func(r rune) bool { return r < ' ' || r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\ufeff' }) {
		node.Style = yaml.DoubleQuotedStyle // one line, with escapes
	}
	return node
}

func sortedKeys(v reflect.Value) []reflect.Value {
	names := v.MapKeys()
	slices.SortFunc(names, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
	return names
}

// inline returns v as one line of YAML, secrets included.
func inline(v reflect.Value) string { return inlineAs(v, openly) }

// inlineAs returns v as one line of YAML, except for what the veil hides.
func inlineAs(v reflect.Value, veil veil) string {
	node := nodeOf(v, veil)
	if node.Kind != yaml.ScalarNode {
		node.Style = yaml.FlowStyle // nodes inside it are written in flow style, too
	}
	return strings.TrimSuffix(encode(node), "\n")
}

func encode(node *yaml.Node) string {
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(node); err != nil {
		panic(fmt.Sprintf("BUG: conf: %v", err)) // v was read as UTF-8, and nothing else can fail
	}
	return b.String()
}
