package slogring

import (
	"encoding"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// formatter makes lines with the same bytes as slog.TextHandler, except that TextHandler writes a second
// space after a group whose values resolve to nothing. TextHandler itself is not used, since it writes
// under a lock and allocates for each error.
type formatter struct {
	line   []byte
	prefix []byte // prefix of keys: the open groups, each with a dot
	text   []byte // text of a value, before it is quoted
}

// formatters are reused. The pool keeps some for each processor, so that getting one takes no lock.
var formatters = sync.Pool{New: func() any { return &formatter{line: make([]byte, 0, 1024)} }}

// keptBytes is the size of the largest buffer, for a line or a value, that is kept for reuse.
const keptBytes = 16 << 10

func (f *formatter) free() {
	if cap(f.line) > keptBytes {
		f.line = nil
	}
	if cap(f.text) > keptBytes {
		f.text = nil
	}
	formatters.Put(f)
}

// record formats r, and reports whether the line was cut.
func (f *formatter) record(h *Handler, r *slog.Record) (cut bool) {
	f.line, f.prefix = f.line[:0], f.prefix[:0] // the built-in keys are in no group
	if !r.Time.IsZero() {
		f.line = append(f.line, "time="...)
		f.line = appendTime(f.line, r.Time)
		f.line = append(f.line, ' ')
	}
	f.line = append(f.line, "level="...)
	f.string(r.Level.String())
	if h.opts.AddSource {
		f.attr(slog.Any(slog.SourceKey, r.Source()))
	}
	f.line = append(f.line, " msg="...)
	f.string(r.Message)
	f.line = append(f.line, h.attrs...)
	f.prefix = append(f.prefix, h.prefix...)
	r.Attrs(func(a slog.Attr) bool {
		f.attr(a)
		return true
	})
	f.line = append(f.line, '\n')
	return f.cut(h.opts.Line)
}

// markBytes is room for the mark of a cut line.
const markBytes = len(" !CUT=18446744073709551615\n")

// cut shortens a line of more than `most` bytes, and appends the number of missing bytes.
func (f *formatter) cut(most int) bool {
	if len(f.line) <= most {
		return false
	}
	kept := most - markBytes
	for !utf8.RuneStart(f.line[kept]) {
		kept--
	}
	missing := len(f.line) - 1 - kept
	f.line = append(f.line[:kept], " !CUT="...)
	f.line = strconv.AppendInt(f.line, int64(missing), 10)
	f.line = append(f.line, '\n')
	return true
}

// beginning returns as many whole runes of `s` as fit into `bytes` bytes.
func beginning(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	for bytes > 0 && !utf8.RuneStart(s[bytes]) {
		bytes--
	}
	return s[:bytes]
}

// attrs appends attributes, and reports whether it wrote anything.
func (f *formatter) attrs(attrs []slog.Attr) (any bool) {
	for _, a := range attrs {
		if f.attr(a) {
			any = true
		}
	}
	return any
}

// attr appends an attribute after a space, and reports whether it wrote anything.
func (f *formatter) attr(a slog.Attr) bool {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		return f.group(a.Key, v.Group())
	case slog.KindAny:
		of := v.Any()
		if a.Key == "" && of == nil {
			return false
		}
		if source, ok := of.(*slog.Source); ok {
			if source == nil || *source == (slog.Source{}) {
				return false
			}
			v = slog.StringValue(source.File + ":" + strconv.Itoa(source.Line))
		}
	}
	f.line = append(f.line, ' ')
	f.key(a.Key)
	f.line = append(f.line, '=')
	f.value(v)
	return true
}

func (f *formatter) group(key string, attrs []slog.Attr) bool {
	if len(attrs) == 0 {
		return true
	}
	if key != "" {
		f.prefix = append(f.prefix, key...)
		f.prefix = append(f.prefix, '.')
	}
	if !f.attrs(attrs) {
		return false // the group stays open, as in slog
	}
	if key != "" {
		f.prefix = f.prefix[:len(f.prefix)-len(key)-1]
	}
	return true
}

func (f *formatter) key(key string) {
	if len(f.prefix) == 0 {
		f.string(key)
		return
	}
	quoted, _ := quoting(f.prefix)
	if !quoted {
		quoted, _ = quoting(key)
	}
	if quoted {
		f.line = strconv.AppendQuote(f.line, string(f.prefix)+key)
		return
	}
	f.line = append(f.line, f.prefix...)
	f.line = append(f.line, key...)
}

func (f *formatter) value(v slog.Value) {
	switch v.Kind() {
	case slog.KindString:
		f.string(v.String())
	case slog.KindInt64:
		f.line = strconv.AppendInt(f.line, v.Int64(), 10)
	case slog.KindUint64:
		f.line = strconv.AppendUint(f.line, v.Uint64(), 10)
	case slog.KindFloat64:
		f.line = strconv.AppendFloat(f.line, v.Float64(), 'g', -1, 64)
	case slog.KindBool:
		f.line = strconv.AppendBool(f.line, v.Bool())
	case slog.KindDuration:
		f.line = append(f.line, v.Duration().String()...)
	case slog.KindTime:
		f.line = appendTime(f.line, v.Time())
	default:
		f.any(v.Any())
	}
}

// any is the fallback for all other types: it appends a value. It calls the value's methods, which may
// panic.
func (f *formatter) any(v any) {
	defer func() {
		if r := recover(); r != nil {
			if v := reflect.ValueOf(v); v.Kind() == reflect.Pointer && v.IsNil() {
				f.string("<nil>")
				return
			}
			f.string(fmt.Sprintf("!PANIC: %v", r))
		}
	}()
	if m, ok := v.(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			f.string(fmt.Sprintf("!ERROR:%v", err))
			return
		}
		f.string(string(text))
		return
	}
	if t := reflect.TypeOf(v); t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		f.line = strconv.AppendQuote(f.line, string(reflect.ValueOf(v).Bytes()))
		return
	}
	if err, ok := v.(error); ok {
		if text, ok := errorText(err); ok {
			f.string(text)
			return
		}
	}
	f.text = fmt.Appendf(f.text[:0], "%+v", v)
	if quoted, _ := quoting(f.text); quoted {
		f.line = strconv.AppendQuote(f.line, string(f.text))
	} else {
		f.line = append(f.line, f.text...)
	}
}

// errorText returns the text that fmt would print for an error, without allocating. `ok` is false if only
// fmt can print the error: it has a Format method, or its Error panics.
func errorText(err error) (text string, ok bool) {
	if _, is := err.(fmt.Formatter); is {
		return "", false
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return err.Error(), true
}

func (f *formatter) string(s string) {
	quoted, escaped := quoting(s)
	switch {
	case !quoted:
		f.line = append(f.line, s...)
	case escaped:
		f.line = strconv.AppendQuote(f.line, s)
	default: // most messages need no escapes; append is far cheaper than strconv.Quote
		f.line = append(f.line, '"')
		f.line = append(f.line, s...)
		f.line = append(f.line, '"')
	}
}

// quoting reports whether slog would quote s, and whether quoting changes s itself, besides adding the
// quotes.
func quoting[S string | []byte](s S) (quoted, escaped bool) {
	if len(s) == 0 {
		return true, false
	}
	for i := 0; i < len(s); {
		switch b := s[i]; {
		case b >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) {
				return true, true
			}
			i += n
			continue
		case b < ' ' || b == '"':
			return true, true
		case b == ' ' || b == '=':
			quoted = true
		case b == '\\' || b == '\x7f':
			escaped = true
		}
		i++
	}
	return quoted, escaped
}

// appendTime appends t with milliseconds. It uses RFC3339Nano, which is a fast layout. To get exactly
// four decimals, it adds a tenth of a millisecond to t; then it removes the fourth decimal.
func appendTime(line []byte, t time.Time) []byte {
	const millis = len("2006-01-02T15:04:05.000")
	n := len(line)
	t = t.Truncate(time.Millisecond).Add(time.Millisecond / 10)
	line = t.AppendFormat(line, time.RFC3339Nano)
	return append(line[:n+millis], line[n+millis+1:]...)
}
