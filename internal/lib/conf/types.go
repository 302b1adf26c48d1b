package conf

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// shape says how a Go type is written in a configuration.
type shape int

const (
	scalar  shape = iota // one text
	list                 // scalars
	section              // named keys
	tree                 // a list or map of sections, or a map of scalars or lists; only the file can give it
)

var (
	textType  = reflect.TypeFor[encoding.TextUnmarshaler]()
	writeType = reflect.TypeFor[encoding.TextMarshaler]()
)

func shapeOf(t reflect.Type) shape {
	if reflect.PointerTo(t).Implements(textType) {
		if !t.Implements(writeType) {
			panic(fmt.Sprintf("BUG: conf: a %s can be read but not written; give it a method MarshalText", t))
		}
		return scalar
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return scalar
	case reflect.Struct:
		return section
	case reflect.Slice:
		if shapeOf(t.Elem()) == scalar {
			return list
		}
		return tree
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			shapeOf(t.Elem())
			return tree
		}
	}
	panic(fmt.Sprintf("BUG: conf: a %s cannot be configured", t))
}

// field is one key of a section, or a section inside that section.
type field struct {
	name, help string
	restart    bool // a change needs a restart
	veil       veil // how much of the value is shown
	index      int
}

// fieldsOf lists the keys of the struct t. A field tagged "-" is not a key.
func fieldsOf(t reflect.Type) []field {
	fields := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("yaml")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" || strings.ContainsAny(name, ",. ") {
			panic(fmt.Sprintf("BUG: conf: %s.%s needs a tag yaml:\"name\", got %q", t, f.Name, name))
		}
		help, reload := f.Tag.Get("help"), f.Tag.Get("reload")
		if help == "" && shapeOf(f.Type) != section {
			panic(fmt.Sprintf("BUG: conf: %s.%s needs a tag help:\"what it is, and within which bounds\"", t, f.Name))
		}
		if reload != "" && reload != "restart" {
			panic(fmt.Sprintf("BUG: conf: %s.%s has the tag reload:%q; only reload:\"restart\" is known", t, f.Name, reload))
		}
		veil, err := veilOf(f.Tag.Get("show"))
		if err != nil {
			panic(fmt.Sprintf("BUG: conf: %s.%s has the tag show:%q; %v", t, f.Name, f.Tag.Get("show"), err))
		}
		fields = append(fields, field{name: name, help: help, restart: reload == "restart", veil: veil, index: i})
	}
	return fields
}

// pathsOf appends the paths of all keys and sections of the struct t, including those in elements of
// lists and maps.
func pathsOf(paths []string, t reflect.Type, path string) []string {
	for _, f := range fieldsOf(t) {
		inner, ft := join(path, f.name), t.Field(f.index).Type
		paths = append(paths, inner)
		for shapeOf(ft) == tree {
			if ft.Kind() == reflect.Slice {
				inner += "[]"
			} else {
				inner += ".NAME"
			}
			ft = ft.Elem()
		}
		if shapeOf(ft) == section {
			paths = pathsOf(paths, ft, inner)
		}
	}
	return paths
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// setScalar reads `text` into `v`. Its error says how to write the text.
func setScalar(v reflect.Value, text string) error {
	if !utf8.ValidString(text) {
		return errors.New("is not UTF-8; write it in UTF-8")
	}
	if reader, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return reader.UnmarshalText([]byte(text))
	}
	if d, ok := v.Addr().Interface().(*time.Duration); ok {
		read, err := ParseDuration(text)
		if err == nil {
			*d = read
		}
		return err
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		read, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("is neither true nor false")
		}
		v.SetBool(read)
	case v.CanInt():
		read, err := strconv.ParseInt(text, 0, v.Type().Bits())
		if err != nil {
			return wrongNumber("is not a whole number", err, -1<<(v.Type().Bits()-1), uint64(1)<<(v.Type().Bits()-1)-1)
		}
		v.SetInt(read)
	case v.CanUint():
		read, err := strconv.ParseUint(text, 0, v.Type().Bits())
		if err != nil {
			return wrongNumber("is not a whole number of 0 or more", err, 0, math.MaxUint64>>(64-v.Type().Bits()))
		}
		v.SetUint(read)
	default:
		read, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || math.IsNaN(read) || math.IsInf(read, 0) {
			return errors.New("is not a finite number")
		}
		v.SetFloat(read)
	}
	return nil
}

func wrongNumber(text string, err error, low int64, high uint64) error {
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("is out of range; set it from %d to %d", low, high)
	}
	return errors.New(text)
}

// format returns v as a text that setScalar reads back. For a list, splitList splits the text first.
func format(v reflect.Value) string {
	if shapeOf(v.Type()) == list {
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = format(v.Index(i))
		}
		return strings.Join(parts, ",")
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return formatDuration(value)
	case encoding.TextMarshaler:
		text, err := value.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("BUG: conf: write a %s: %v", v.Type(), err)) // cannot happen: v was read from text
		}
		return string(text)
	}
	return fmt.Sprint(v.Interface())
}

// splitList reads the list of a flag or environment variable. Only the file can give an element
// that contains a comma.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return []string{}
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// longUnits are the units of durations that Prometheus has and Go lacks, the longest first.
var longUnits = [...]struct {
	letter string
	days   int64
}{{"y", 365}, {"w", 7}, {"d", 1}}

const day = 24 * time.Hour

var errDuration = errors.New("is not a duration; write it like 500ms, 10s, 1h30m or 2d")

// ParseDuration reads durations as Go and Prometheus write them: 1h30m, 1.5s, 2d12h. It refuses
// negative durations, since no key can use them.
func ParseDuration(text string) (time.Duration, error) {
	var days int64
	rest := text
	for _, unit := range longUnits {
		count, after, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(count, 10, 31) // 31 bits times 365 days do not overflow
		if err != nil {
			return 0, errDuration
		}
		days += int64(n) * unit.days
		rest = after
	}
	if days > int64(math.MaxInt64/day) {
		return 0, errors.New("is longer than the 292 years that can be expressed; set it to 200y or less")
	}
	var d time.Duration
	if rest != "" || rest == text {
		var err error
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, errDuration
		}
	}
	if d < 0 {
		return 0, errors.New("is negative; set it to 0s or more")
	}
	sum := time.Duration(days)*day + d
	if sum < 0 {
		return 0, errors.New("is longer than the 292 years that can be expressed; set it to 200y or less")
	}
	return sum, nil
}

// formatDuration writes d with days and without units that are zero: 40d, not 960h0m0s.
func formatDuration(d time.Duration) string {
	if d < day {
		text := d.String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	}
	text := strconv.FormatInt(int64(d/day), 10) + "d"
	if rest := d % day; rest != 0 {
		text += formatDuration(rest)
	}
	return text
}

// Bytes is a size, written like 4MiB.
type Bytes int64

// byteUnits are the units of sizes. The binary units come first, since String uses only these.
var byteUnits = [...]struct {
	name string
	size Bytes
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

const binaryUnits = 4

// UnmarshalText reads a number of bytes with or without a unit.
func (b *Bytes) UnmarshalText(text []byte) error {
	digits, unit := string(text), Bytes(1)
	for _, u := range byteUnits {
		if count, found := strings.CutSuffix(digits, u.name); found {
			digits, unit = strings.TrimSpace(count), u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if errors.Is(err, strconv.ErrRange) || Bytes(n) > math.MaxInt64/unit {
		return errors.New("is more than can be expressed; set it to 8388607TiB or less")
	}
	if err != nil {
		return errors.New("is not a size; write a whole number of B, KiB, MiB or GiB, like 4MiB")
	}
	*b = Bytes(n) * unit
	return nil
}

// MarshalText writes the form that UnmarshalText reads.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b Bytes) String() string {
	for _, u := range byteUnits[:binaryUnits] {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// OptionalInt is a whole number of 0 or more that may be missing. A missing number is not 0.
type OptionalInt struct {
	given bool
	n     int
}

// Some returns n as an OptionalInt.
func Some(n int) OptionalInt { return OptionalInt{given: true, n: n} }

// Or returns the number, or `other` if the number is missing.
func (o OptionalInt) Or(other int) int {
	if o.given {
		return o.n
	}
	return other
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *OptionalInt) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*o = OptionalInt{}
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 0 {
		return errors.New("is not a whole number of 0 or more")
	}
	*o = Some(n)
	return nil
}

// MarshalText writes the form that UnmarshalText reads.
func (o OptionalInt) MarshalText() ([]byte, error) {
	if !o.given {
		return nil, nil
	}
	return strconv.AppendInt(nil, int64(o.n), 10), nil
}

func typeName(t reflect.Type) string {
	switch {
	case shapeOf(t) == list:
		return typeName(t.Elem()) + ",..."
	case shapeOf(t) == tree && t.Kind() == reflect.Slice:
		return "list"
	case shapeOf(t) == tree:
		return "map"
	case t.String() == "time.Duration":
		return "duration"
	case t == reflect.TypeFor[Bytes]():
		return "size"
	case t == reflect.TypeFor[OptionalInt]():
		return "int"
	case reflect.PointerTo(t).Implements(textType), t.Kind() == reflect.String:
		return "string"
	case t.Kind() == reflect.Bool:
		return "bool"
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		return "number"
	default:
		return "int"
	}
}
