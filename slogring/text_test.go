package slogring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// both is a pair: our handler and slog's handler, with their outputs. Its methods make the same calls
// on both handlers.
type both struct {
	ours, slogs slog.Handler
	line, text  *bytes.Buffer
	root        *Handler
}

const longest = 1 << 16 // bytes of a line

func newBoth(o Options) *both {
	b := &both{line: new(bytes.Buffer), text: new(bytes.Buffer)}
	o.Unsampled, o.Bytes, o.Line = EveryLevel, 1, longest // the smallest ring for the longest line
	b.root = New(b.line, o)
	b.ours = b.root
	b.slogs = slog.NewTextHandler(b.text, &slog.HandlerOptions{Level: o.Level, AddSource: o.AddSource})
	return b
}

func (b *both) with(change func(slog.Handler) slog.Handler) {
	b.ours, b.slogs = change(b.ours), change(b.slogs)
}

func (b *both) handle(t testing.TB, r slog.Record) {
	t.Helper()
	for _, h := range []slog.Handler{b.ours, b.slogs} {
		if err := h.Handle(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *both) compare(t testing.TB) {
	t.Helper()
	if err := b.root.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	ours, slogs := strings.SplitAfter(b.line.String(), "\n"), strings.SplitAfter(b.text.String(), "\n")
	for i := range max(len(ours), len(slogs)) {
		var a, b string
		if i < len(ours) {
			a = ours[i]
		}
		if i < len(slogs) {
			b = slogs[i]
		}
		if a != b {
			t.Errorf("line %d:\n%q\nslog's:\n%q", i, a, b)
		}
	}
}

type (
	valuer  struct{ v slog.Value }
	level   struct{ n int }
	failing struct{}
	bang    struct{ in string }
	bytesOf []byte
	text    []byte
	verbose struct{ error }
)

func (v valuer) LogValue() slog.Value        { return v.v }
func (l *level) Error() string               { return fmt.Sprint("level ", l.n) } // panics on nil
func (failing) MarshalText() ([]byte, error) { return []byte("half"), errors.New("cannot be text") }
func (b bang) String() string                { panic(b.in) }
func (b bang) MarshalText() ([]byte, error)  { panic(b.in) }
func (t text) MarshalText() ([]byte, error)  { return t, nil }
func (b bytesOf) Error() string              { return "an error of bytes" }
func (v verbose) Format(s fmt.State, verb rune) {
	fmt.Fprintf(s, "%%%c with plus: %v", verb, s.Flag('+'))
}

type panicking struct{ in any }

func (p panicking) Error() string { panic(p.in) }

type printed struct{ s string }

func (p printed) String() string { return p.s }

var (
	noLevel *level
	noBuf   *bytes.Buffer
	here    = time.FixedZone("here", -(3*3600 + 30*60))
)

// values lists a slog.Value of every kind, with every way to convert one to text.
var values = []slog.Value{
	slog.StringValue(""), slog.StringValue("plain"), slog.StringValue("two words"), slog.StringValue("a=b"),
	slog.StringValue(`C:\temp`), slog.StringValue(`C:\my temp`), slog.StringValue(`"quoted"`),
	slog.StringValue("tab\tand\nline"),
	slog.StringValue("\x7f"), slog.StringValue("\x7f and space"), slog.StringValue("größe"), slog.StringValue("größe 2"),
	slog.StringValue("no\u00a0break"), slog.StringValue("\u2028"), slog.StringValue("\ufffd"),
	slog.StringValue("\xff\xfe"),
	slog.StringValue("\u200b"), slog.StringValue("日本語"), slog.StringValue("cut \xe6\x97"), slog.StringValue("\x00"),
	slog.StringValue("🙂 smile"),
	slog.IntValue(0), slog.Int64Value(math.MinInt64), slog.Uint64Value(math.MaxUint64), slog.BoolValue(true),
	slog.BoolValue(false),
	slog.Float64Value(0), slog.Float64Value(1e21), slog.Float64Value(.1), slog.Float64Value(math.Inf(-1)),
	slog.Float64Value(math.NaN()),
	slog.DurationValue(0), slog.DurationValue(1500 * time.Millisecond), slog.DurationValue(math.MinInt64),
	slog.TimeValue(time.Time{}), slog.TimeValue(time.Unix(1795228020, 999999999).UTC()),
	slog.TimeValue(time.Unix(1, 5e5).In(here)),
	slog.TimeValue(time.Date(12345, 1, 2, 3, 4, 5, 6, time.UTC)),
	slog.TimeValue(time.Date(-5, 1, 2, 3, 4, 5, 6, time.UTC)),
	slog.AnyValue(nil), slog.AnyValue(errors.New("plain")), slog.AnyValue(fmt.Errorf("read: %w", io.EOF)),
	slog.AnyValue(&os.PathError{Op: "open", Path: "/no file", Err: os.ErrNotExist}), slog.AnyValue(noLevel),
	slog.AnyValue(&level{3}),
	slog.AnyValue(panicking{"out of luck"}), slog.AnyValue(panicking{io.EOF}), slog.AnyValue(verbose{io.EOF}),
	slog.AnyValue(failing{}), slog.AnyValue(bang{"bang"}),
	slog.AnyValue(text("plain")), slog.AnyValue(text("two words")), slog.AnyValue(text(nil)),
	slog.AnyValue(bytesOf("raw")),
	slog.AnyValue([]byte("bytes")), slog.AnyValue([]byte(nil)), slog.AnyValue([]int{1, 2}),
	slog.AnyValue(map[string]int{"b": 2, "a": 1}),
	slog.AnyValue(struct{ A, B int }{1, 2}), slog.AnyValue(&struct{ A string }{"x"}), slog.AnyValue(printed{"a string"}),
	slog.AnyValue(printed{"word"}),
	slog.AnyValue(noBuf), slog.AnyValue(netip.MustParseAddr("::1")), slog.AnyValue(slog.LevelWarn), slog.AnyValue(int8(3)),
	slog.AnyValue('x'),
	slog.AnyValue(&slog.Source{File: "/a b/c.go", Line: 7}), slog.AnyValue(&slog.Source{}),
	slog.AnyValue((*slog.Source)(nil)),
	slog.AnyValue(slog.Source{File: "c.go"}), slog.AnyValue(complex(1, 2)), slog.AnyValue([]slog.Attr{slog.Int("in", 1)}),
	slog.AnyValue(valuer{slog.StringValue("resolved")}), slog.AnyValue(valuer{slog.AnyValue(valuer{slog.IntValue(5)})}),
	slog.AnyValue(valuer{slog.GroupValue(slog.Int("a", 1), slog.Int("b", 2))}), slog.AnyValue(valuer{slog.GroupValue()}),
	slog.AnyValue(valuer{slog.AnyValue(errors.New("late"))}),
	slog.GroupValue(), slog.GroupValue(slog.String("k", "v")), slog.GroupValue(slog.Attr{}),
	slog.GroupValue(slog.Group("in", slog.Attr{}), slog.Int("x", 1)),
	slog.GroupValue(slog.Int("a", 1), slog.Group("deep er", slog.Bool("b", true)), slog.Group("", slog.Int("inline", 1))),
}

var keys = []string{
	"key", "k", "two words", "a=b", "", "dots.in.it", `back\slash`, `"`, "größe", "\xff", "msg", "time",
	"a long key that has to be copied when it stands in a group",
}

// Each value gives the same bytes as with slog.TextHandler, under each key: in a record, in a group, and
// in WithAttrs.
func TestSameBytes(t *testing.T) {
	at := time.Date(2026, 11, 21, 21, 14, 47, 123_900_000, here)
	for _, v := range values {
		for _, key := range keys {
			b := newBoth(Options{})
			r := slog.NewRecord(at, slog.LevelInfo, "message", 0)
			r.AddAttrs(slog.Attr{Key: key, Value: v}, slog.Int("next", 1),
				slog.Group(key, slog.Attr{Key: key, Value: v}, slog.Int("next", 2)), slog.Int("last", 3))
			b.handle(t, r)
			b.with(func(h slog.Handler) slog.Handler { return h.WithAttrs([]slog.Attr{{Key: key, Value: v}}) })
			b.handle(t, r)
			b.with(func(h slog.Handler) slog.Handler {
				return h.WithGroup("group").WithAttrs([]slog.Attr{{Key: key, Value: v}}).WithGroup("of groups")
			})
			b.handle(t, r)
			b.compare(t)
		}
	}
}

func TestSameBytesOfTheBuiltIn(t *testing.T) {
	b := newBoth(Options{Level: EveryLevel})
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Now(), time.Date(2026, 1, 2, 3, 4, 5, 999_999_999, here)} {
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, -100, 3, 9} {
			for _, message := range []string{"", "word", "two words", "a=b", "line\nline", `"`, "größe", "\xff"} {
				b.handle(t, slog.NewRecord(at, level, message, 0))
			}
		}
	}
	b.compare(t)
}

func TestSameSource(t *testing.T) {
	b := newBoth(Options{AddSource: true})
	b.handle(t, slog.NewRecord(time.Now(), slog.LevelInfo, "without a place", 0))
	logger := slog.New(tee{b.ours, b.slogs}).With("with", 1).WithGroup("group")
	logger.Info("message", "key", "value")
	if !strings.Contains(b.text.String(), "text_test.go:") {
		t.Error("no line has a source")
	}
	b.compare(t)
}

// tee hands each record to two handlers.
type tee [2]slog.Handler

func (t tee) Enabled(context.Context, slog.Level) bool { return true }

func (t tee) Handle(ctx context.Context, r slog.Record) error {
	return errors.Join(t[0].Handle(ctx, r.Clone()), t[1].Handle(ctx, r.Clone()))
}

func (t tee) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tee{t[0].WithAttrs(attrs), t[1].WithAttrs(attrs)}
}

func (t tee) WithGroup(name string) slog.Handler {
	return tee{t[0].WithGroup(name), t[1].WithGroup(name)}
}

// Handlers that are derived from the same handler do not overwrite each other's attributes. A group
// without a name is not a group.
func TestSiblings(t *testing.T) {
	out := newOutput()
	h := New(out, Options{Unsampled: EveryLevel})
	var children []slog.Handler
	var want []string
	var parent slog.Handler = h
	attrs := ""
	for i := range 9 { // several, since the spare capacity of a slice varies
		parent = parent.WithAttrs([]slog.Attr{slog.Int("n", i)})
		attrs += fmt.Sprint(" n=", i)
		for _, name := range []string{"a", "b"} {
			children = append(children, parent.WithAttrs([]slog.Attr{slog.String("name", name)}))
			want = append(want, "level=INFO msg=m"+attrs+" name="+name+" k=v")
		}
	}
	for _, child := range children {
		slog.New(child.WithGroup("")).Info("m", "k", "v")
	}
	finish(t, h)
	out.expect(t, want...)
}

func TestLongLinesAreNotKept(t *testing.T) {
	f := &formatter{line: make([]byte, keptBytes+1), text: make([]byte, keptBytes+1)}
	f.free()
	if cap(f.line)+cap(f.text) > 0 {
		t.Errorf("buffers of %d and %d bytes are kept, want none", cap(f.line), cap(f.text))
	}
}

// random makes values that programs log, and values that they should not log.
type random struct{ *rand.Rand }

func (r random) attrs(depth int) (all []slog.Attr) {
	for range r.IntN(8) {
		a := slog.Attr{Key: keys[r.IntN(len(keys))], Value: values[r.IntN(len(values))]}
		if depth > 0 && r.IntN(4) == 0 {
			a.Value = slog.GroupValue(r.attrs(depth - 1)...)
		}
		if depth > 0 && r.IntN(8) == 0 {
			a.Value = slog.AnyValue(valuer{a.Value})
		}
		all = append(all, a)
	}
	return all
}

func (r random) handlers(b *both) {
	for range r.IntN(5) {
		switch attrs, name := r.attrs(2), keys[r.IntN(len(keys))]; {
		case r.IntN(2) == 0:
			b.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(append([]slog.Attr(nil), attrs...)) })
		case name != "": // a Logger never makes a group without a name, for which TextHandler would write a dot
			b.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
		}
	}
}

// Random groups, attributes and empty attributes, in any order, give the same bytes as slog.
func TestSameBytesOfRandomRecords(t *testing.T) {
	for seed := range uint64(600) {
		r := random{rand.New(rand.NewPCG(seed, 1))}
		b := newBoth(Options{})
		r.handlers(b)
		record := slog.NewRecord(time.Unix(r.Int64N(1e10), r.Int64N(1e9)), slog.Level(r.IntN(12)), keys[r.IntN(len(keys))], 0)
		record.AddAttrs(r.attrs(3)...)
		b.handle(t, record)
		// slog writes two spaces where the first group in WithAttrs holds only values that
		// resolve to empty groups. We do not copy that.
		one := strings.ReplaceAll(b.text.String(), "  ", " ")
		b.text = bytes.NewBufferString(one)
		if b.compare(t); t.Failed() {
			t.Fatalf("the test failed with the seed %d", seed)
		}
	}
}

// For any text, the handler writes a single line, the same as slog's.
func FuzzSameBytes(f *testing.F) {
	for _, v := range values {
		if v.Kind() == slog.KindString {
			f.Add(v.String(), v.String(), v.String(), int64(1795228020123456789))
		}
	}
	f.Add("message", "key", strings.Repeat("long ", 100), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, message, key, value string, nanoseconds int64) {
		// Skip inputs whose line would be cut. The line contains some inputs twenty times, with up to
		// four bytes for each byte of an input.
		if 100*(len(message)+len(key)+len(value)) > longest {
			return
		}
		b := newBoth(Options{})
		r := slog.NewRecord(time.Unix(0, nanoseconds).In(here), slog.Level(len(key)), message, 0)
		r.AddAttrs(slog.String(key, value), slog.Any(key, errors.New(value)), slog.Any(key, printed{value}),
			slog.Any(key, text(value)),
			slog.Any(key, []byte(value)), slog.Group(key, slog.String(value, message)), slog.Time(value, r.Time),
			slog.Float64(message, float64(nanoseconds)))
		b.handle(t, r)
		if key != "" {
			b.with(func(h slog.Handler) slog.Handler {
				return h.WithGroup(key).WithAttrs([]slog.Attr{slog.String(value, key)})
			})
		}
		b.handle(t, r)
		b.compare(t)
		if n := bytes.Count(b.line.Bytes(), []byte{'\n'}); n != 2 {
			t.Errorf("2 records have %d lines, want 2:\n%s", n, b.line)
		}
	})
}
