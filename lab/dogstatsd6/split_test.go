package dogstatsd6

import (
	"bytes"
	"reflect"
	"strconv"
	"testing"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// fields are the contents of a line.
type fields struct {
	name, kind, set string
	value           float64
	tags            []string
}

// splitter reads a line name:value|type|#tags. Its results are valid until it reads the next line.
type splitter interface {
	split(line []byte) bool
	fields() fields
}

var splitters = []struct {
	name string
	make func() splitter
}{
	{"bytes.Split", func() splitter { return new(atOnce) }},
	{"split-in-two", func() splitter { return new(inTwo) }},
	{"ours", func() splitter { return new(inPlace) }},
}

// BenchmarkSplit measures the time to split a line into its fields. Freshet does not split the tags
// here: it splits them once per context, not per metric. But Freshet looks for parts that the other
// techniques ignore: several values or lines, sampling rates, timestamps, origins.
//
// Bound for our technique: 0 allocs/op.
func BenchmarkSplit(b *testing.B) {
	for _, technique := range splitters {
		b.Run(technique.name, func(b *testing.B) {
			s := technique.make()
			measure(b, func(n int) {
				for i := range n {
					if !s.split(packet(i)) {
						b.Fatalf("%q: malformed", packet(i))
					}
				}
			})
		})
	}
}

func TestSplitters(t *testing.T) {
	for _, technique := range splitters {
		first, s := splitters[0].make(), technique.make()
		for _, line := range traffic {
			if !first.split(line) || !s.split(line) {
				t.Fatalf("%s: the line %q counts as malformed", technique.name, line)
			}
			if got, want := s.fields(), first.fields(); !reflect.DeepEqual(got, want) || len(got.tags) != 4 {
				t.Fatalf("%s: %q:\ngot  %+v\nwant %+v", technique.name, line, got, want)
			}
		}
	}
}

// atOnce is the first version: each split makes a slice with all parts.
type atOnce struct{ f fields }

func (s *atOnce) fields() fields { return s.f }

func (s *atOnce) split(line []byte) bool {
	parts := bytes.Split(line, []byte("|"))
	head := bytes.Split(parts[0], []byte(":"))
	if len(parts) != 3 || len(head) != 2 || len(parts[2]) == 0 || parts[2][0] != '#' {
		return false
	}
	tags := bytes.Split(parts[2][1:], []byte(","))
	s.f = fields{name: string(head[0]), kind: string(parts[1]), tags: make([]string, len(tags))}
	for i, tag := range tags {
		s.f.tags[i] = string(tag)
	}
	return s.f.read(head[1])
}

// inTwo is the version of the talk: it cuts off one part after another.
type inTwo struct{ f fields }

func (s *inTwo) fields() fields { return s.f }

func (s *inTwo) split(line []byte) bool {
	head, rest := splitInTwo(line, '|')
	name, value := splitInTwo(head, ':')
	kind, rest := splitInTwo(rest, '|')
	if len(rest) == 0 || rest[0] != '#' {
		return false
	}
	rest = rest[1:]
	s.f = fields{name: string(name), kind: string(kind), tags: make([]string, 0, bytes.Count(rest, []byte(","))+1)}
	for rest != nil {
		var tag []byte
		tag, rest = splitInTwo(rest, ',')
		s.f.tags = append(s.f.tags, string(tag))
	}
	return s.f.read(value)
}

func splitInTwo(b []byte, separator byte) (head, rest []byte) {
	if i := bytes.IndexByte(b, separator); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// read parses the value of a metric.
func (f *fields) read(value []byte) bool {
	if f.kind == "s" {
		f.set = string(value)
		return true
	}
	var err error
	f.value, err = strconv.ParseFloat(string(value), 64)
	return err == nil
}

// inPlace is Freshet's technique: it finds the fields in place, and copies nothing.
type inPlace struct{ parser dogstatsd.Parser }

func (s *inPlace) split(line []byte) bool {
	s.parser.Reset(line)
	return s.parser.Next() == dogstatsd.MetricLine
}

func (s *inPlace) fields() fields {
	m := &s.parser.Metric
	kinds := [...]string{
		dogstatsd.Count: "c", dogstatsd.Gauge: "g", dogstatsd.Timing: "ms",
		dogstatsd.Histogram: "h", dogstatsd.Distribution: "d", dogstatsd.Set: "s",
	}
	f := fields{name: string(m.Name), kind: kinds[m.Type], set: string(m.Set)}
	for _, v := range m.Values {
		f.value = v
	}
	for tag := range dogstatsd.Tags(m.Tags) {
		f.tags = append(f.tags, string(tag))
	}
	return f
}
