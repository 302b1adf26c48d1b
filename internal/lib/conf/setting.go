package conf

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Setting is a key and its value in one configuration.
type Setting struct {
	Key     string `json:"key"`
	Value   any    `json:"value"` // as in a file: "10s", 5, true, lists and maps
	Default any    `json:"default"`
	SetBy   string `json:"set_by"` // "freshet.yaml:3", "FRESHET_DOGSTATSD_UDP", "--dogstatsd-udp" or "default"
	Restart bool   `json:"restart"`
	Help    string `json:"help"`

	node, preset *yaml.Node
}

// Origins names, for each key, what set its value. A key without an entry has its default.
type Origins map[string]string

const byDefault = "default"

// Settings returns every key with its value in `cfg`, secrets included.
func (s *Schema[T]) Settings(cfg T, from Origins) []Setting { return s.settings(cfg, from, openly) }

// Shown returns every key with as much of its value as others may see.
func (s *Schema[T]) Shown(cfg T, from Origins) []Setting { return s.settings(cfg, from, plainly) }

func (s *Schema[T]) settings(cfg T, from Origins, veil veil) []Setting {
	all := make([]Setting, 0, len(s.keys))
	root := reflect.ValueOf(&cfg).Elem()
	for _, k := range s.keys {
		one := Setting{
			Key: k.path, SetBy: cmp.Or(from[k.path], byDefault), Restart: k.restart, Help: k.help,
			node: nodeOf(root.FieldByIndex(k.index), veil.of(k.veil)), preset: nodeOf(k.preset, openly),
		}
		one.Value, one.Default = plain(one.node), plain(one.preset)
		all = append(all, one)
	}
	return all
}

// plain returns a node's value for JSON.
func plain(node *yaml.Node) (v any) {
	if err := node.Decode(&v); err != nil {
		panic(fmt.Sprintf("BUG: conf: %v", err))
	}
	return v
}

// Render writes settings as a file that gives the same configuration, with the help of each key
// above the key. Keys with default values are commented out: the other keys then stand out, and a
// later version may change its defaults.
func Render(settings []Setting) string {
	var b strings.Builder
	var section []string // sections of the previous key
	for i, s := range settings {
		path := strings.Split(s.Key, ".")
		name, around := path[len(path)-1], path[:len(path)-1]
		if i > 0 {
			b.WriteByte('\n')
		}
		for depth := range around {
			if depth < len(section) && section[depth] == around[depth] {
				continue
			}
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), around[depth])
			section = append(section[:depth], around[depth])
		}
		section = section[:len(around)]
		s.render(&b, name, strings.Repeat("  ", len(around)))
	}
	return b.String()
}

// render writes one key, indented by `margin`.
func (s *Setting) render(b *strings.Builder, name, margin string) {
	help := s.Help
	if s.Restart {
		help += ". A change takes a restart"
	}
	for _, line := range wrap(help, 78-len(margin)) {
		fmt.Fprintf(b, "%s# %s\n", margin, line)
	}
	mark := ""
	if s.SetBy == byDefault {
		mark = "#"
	} else {
		preset := *s.preset
		if preset.Kind != yaml.ScalarNode {
			preset.Style = yaml.FlowStyle
		}
		fmt.Fprintf(b, "%s# Set by %s; default %s", margin, oneLine(s.SetBy), encode(&preset))
	}
	pair := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{textNode(name), s.node}}
	for line := range strings.Lines(encode(pair)) {
		b.WriteString(margin + mark + line)
	}
}

// wrap breaks `text` into lines of at most `width` bytes. A longer word gets its own line.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// origin is where a value came from: a line of the file, a flag or an environment variable. The
// origin of a default has the path as its name.
type origin struct {
	line  int // 0 if the value is not from the file
	name  string
	value string // the value as written; empty for lists, maps and sections in the file
}
