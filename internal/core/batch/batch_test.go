package batch

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

const second = 1_763_680_000

// increments returns one increment of each kind and form.
func increments() []Increment {
	key := func(k series.Kind) []byte {
		return series.AppendKey(nil, k, labels.FromStrings("__name__", "m_"+k.String(), "host", "web-1"))
	}
	timer := new(histogram.Exponential)
	timer.Reset(3)
	timer.Observe(0.25, 10, 160)
	timer.Observe(-3, 1, 160)
	set := new(distinct.Set)
	set.Add(distinct.Hash([]byte("user-1")))
	classic := &series.Policy{Schema: 3, MaxBuckets: 160, Bounds: []float64{0.1, 1}}
	return []Increment{
		{Key: key(series.Counter), Samples: 3, Value: 10.0 / 3},
		{Key: key(series.Counter), Samples: 1, Value: 1, Time: second - 100},
		{Key: key(series.Gauge), Samples: 2, Value: -1.5, At: second*1e9 + 123, Source: 77},
		{Key: key(series.Gauge), Samples: 1, Value: 5, At: second*1e9 + 5e8, Relative: true},
		{Key: key(series.Check), Samples: 1, Value: 2, At: second*1e9 - 1},
		{Key: key(series.Timer), Samples: 2, Timer: timer},
		{Key: key(series.Timer), Policy: series.AppendPolicy(nil, classic), Samples: 2, Classic: []float64{1, 0, 20},
			Sum: 12},
		{Key: key(series.Set), Samples: 1, Set: set},
		{Key: key(series.Counter), Samples: 1, Value: 7, Delta: second*1e3 - 60_001},
		{Key: key(series.Timer), Samples: 1, Timer: timer, Delta: second*1e3 + 999},
		{Key: key(series.Timer), Samples: 2, Timer: timer,
			Exemplar: &Exemplar{Value: -3, Time: second*1e3 - 7, Trace: TraceOf([]byte("4bf92f3577b34da6A3CE929d0e0e4736"))}},
		{Key: key(series.Timer), Policy: series.AppendPolicy(nil, classic), Samples: 1, Classic: []float64{1, 0, 0}, Sum: 0.1,
			Exemplar: &Exemplar{Value: 0.1, Time: 1, Trace: TraceOf([]byte("f"))}},
		{Key: key(series.UpDown), Samples: 2, Value: -3.5, Time: second - 100},
	}
}

func encode(h Header, incs []Increment) []byte {
	b := Begin(nil, &h)
	for i := range incs {
		b = incs[i].Append(b, h.Second)
	}
	End(b, uint32(len(incs)))
	return b
}

func header() Header {
	return Header{
		Tenant: []byte("default"), Shard: 1023, Producer: 1 << 63, Incarnation: 2, Sequence: 3, Second: second,
		Birth: second*1e9 + 7, UpDown: true,
	}
}

// checkBrief reads an increment without its key and policy. An increment that is cut short must be
// refused.
func checkBrief(t *testing.T, brief []byte, want *Increment) {
	t.Helper()
	var r Reader
	for n := range brief {
		if got := r.Brief(want.Kind(), second, brief[:n]); got != nil {
			t.Fatalf("an increment cut to %d of %d bytes is read as %+v", n, len(brief), *got)
		}
	}
	got := r.Brief(want.Kind(), second, append(brief, "what follows"...))
	if got == nil || got.Kind() != want.Kind() {
		t.Fatalf("%q is read as %+v, want the kind %v", brief, got, want.Kind())
	}
	if want.Set != nil && got.Set.Len() == want.Set.Len() {
		got.Set = want.Set
	}
	if want.Timer != nil && got.Timer.Float().Equals(want.Timer.Float()) {
		got.Timer = want.Timer
	}
	got.Key, got.Policy = want.Key, want.Policy
	if !reflect.DeepEqual(*got, *want) {
		t.Errorf("read %+v, want %+v", *got, *want)
	}
}

func TestReadBack(t *testing.T) {
	want := increments()
	var r Reader
	if err := r.Reset(encode(header(), want)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r.Header, header()) {
		t.Errorf("read the header %+v", r.Header)
	}
	for i := range want {
		got := r.Next()
		if got == nil {
			t.Fatalf("increment %d is not read: %v", i, r.Err())
		}
		if len(got.Policy) == 0 {
			got.Policy = nil
		}
		brief := got.AppendBrief(nil)
		got.flags, got.brief = 0, nil
		if got.Set != nil {
			if got.Set.Len() != want[i].Set.Len() {
				t.Errorf("set of %d", got.Set.Len())
			}
			got.Set = want[i].Set
		}
		if got.Timer != nil {
			if !got.Timer.Float().Equals(want[i].Timer.Float()) {
				t.Errorf("timer %v", got.Timer.Float())
			}
			got.Timer = want[i].Timer
		}
		if !reflect.DeepEqual(*got, want[i]) {
			t.Errorf("increment %d: %+v, want %+v", i, *got, want[i])
		}
		checkBrief(t, brief, &want[i])
	}
	if r.Next() != nil || r.Err() != nil {
		t.Errorf("at the end: got another increment, or the error %v", r.Err())
	}
}

// A batch that was cut short is reported, and never yields a wrong increment: all increments before
// the cut are read as they were written.
func TestTruncation(t *testing.T) {
	incs := increments()
	whole := encode(header(), incs)
	for n := range whole {
		var r Reader
		if r.Reset(whole[:n]) != nil {
			continue
		}
		i := 0
		for inc := r.Next(); inc != nil; inc = r.Next() {
			if string(inc.Key) != string(incs[i].Key) {
				t.Fatalf("cut at byte %d: increment %d has the key %q", n, i, inc.Key)
			}
			i++
		}
		if r.Err() == nil {
			t.Fatalf("cut at byte %d of %d: no error", n, len(whole))
		}
	}
}

// A malformed increment used to end the batch, and the increments of other clients after it were
// lost.
func TestAMalformedIncrementCostsOnlyItself(t *testing.T) {
	key := func(k series.Kind) []byte { return series.AppendKey(nil, k, labels.FromStrings("__name__", "bad")) }
	timer := new(histogram.Exponential)
	timer.Observe(math.MaxFloat64, 2, 160)
	traced := func(k series.Kind, digits string, value float64, time int64) Increment {
		inc := Increment{
			Key: key(k), Samples: 1, Value: 1, Classic: []float64{1},
			Exemplar: &Exemplar{Value: value, Time: time, Trace: TraceOf([]byte(digits))},
		}
		if k != series.Timer {
			inc.Classic = nil
		}
		return inc
	}
	good := increments()
	for _, test := range []struct {
		why string
		bad Increment
		end []byte // the bytes after the increment
	}{
		{"a field of a newer version", good[0], []byte{1}},
		{"a kind of a newer version", Increment{Key: []byte{99}}, nil},
		{"a time in milliseconds", Increment{Key: key(series.Counter), Samples: 1, Value: 1, Time: second * 1000}, nil},
		{"a time before 1970", Increment{Key: key(series.Counter), Samples: 1, Value: 1, Time: -1}, nil},
		{"an infinite up/down counter", Increment{Key: key(series.UpDown), Samples: 1, Value: math.Inf(-1)}, nil},
		{"an infinite counter", Increment{Key: key(series.Counter), Samples: 1, Value: math.Inf(1)}, nil},
		{"a gauge that is no number", Increment{Key: key(series.Gauge), Samples: 1, Value: math.NaN()}, nil},
		{"a timer whose sum is infinite", Increment{Key: key(series.Timer), Samples: 2, Timer: timer}, nil},
		{"a classic bucket that is infinite",
			Increment{Key: key(series.Timer), Samples: 1, Classic: []float64{math.Inf(1), 0}}, nil},
		{"a classic bucket below zero", Increment{Key: key(series.Timer), Samples: 1, Classic: []float64{-1, 0}}, nil},
		{"a timer with an empty list of classic buckets",
			Increment{Key: key(series.Timer), Samples: 1, Classic: []float64{}}, nil},
		{"a counter with an exemplar", traced(series.Counter, "ab", 1, second*1e3), nil},
		{"an exemplar without a trace", traced(series.Timer, "", 1, second*1e3), nil},
		{"an exemplar with a malformed trace", traced(series.Timer, "ag", 1, second*1e3), nil},
		{"an exemplar that is no number", traced(series.Timer, "ab", math.NaN(), second*1e3), nil},
		{"an exemplar without a time", traced(series.Timer, "ab", 1, 0), nil},
		{"an exemplar before 1970", traced(series.Timer, "ab", 1, -1), nil},
		{"an exemplar beyond all clocks", traced(series.Timer, "ab", 1, maxSecond*1e3+1), nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			h := header()
			b := good[0].Append(Begin(nil, &h), second)
			start := len(b)
			b = append(test.bad.Append(b, second), test.end...)
			binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-lengthSize))
			b = good[7].Append(b, second)
			End(b, 3)
			var r Reader
			if err := r.Reset(b); err != nil {
				t.Fatal(err)
			}
			for _, want := range []Increment{good[0], good[7]} {
				if got := r.Next(); got == nil || string(got.Key) != string(want.Key) {
					t.Fatalf("got %+v, want %+v", got, want)
				}
			}
			if r.Next() != nil || r.Err() == nil || r.skipped != 1 {
				t.Errorf("at the end: %d increments skipped, error %v; want 1 and an error", r.skipped, r.Err())
			}
		})
	}
}

// The clock of a computer without a battery starts in 1970. If the clock is corrected while the
// first window is open, earlier samples lie decades before the window's second.
func TestTheClockMayJumpWithinAWindow(t *testing.T) {
	inc := increments()[2]
	inc.At = 5e9
	var r Reader
	if err := r.Reset(encode(header(), []Increment{inc})); err != nil {
		t.Fatal(err)
	}
	if got := r.Next(); got == nil || got.At != 5e9 {
		t.Errorf("read back: %+v, %v", got, r.Err())
	}
}

// A journal frame holds 16 MiB at most. A larger batch could never be written, and its producer
// used to retry it for ever. So a large window becomes several batches of a shard. Each has a
// higher sequence than the batch before; otherwise the reader would treat it as a repeat. Sequences
// of the next window are higher than all of them.
func TestALargeWindowIsSplit(t *testing.T) {
	const frame = 16 << 20
	inc := increments()[0]
	inc.Key = series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", strings.Repeat("m", 64<<10)))
	small := increments()[0]
	var w Writer
	last := map[uint16]uint64{}
	for window := range uint64(2) {
		h := header()
		h.Sequence = 7 + window
		w.Begin(h)
		want := 0
		for range 300 { // 19 MiB
			w.Add(5, &inc)
			w.Add(6, &small)
			want += 2
		}
		batches := w.End()
		if len(batches) != 5+1 {
			t.Errorf("%d batches", len(batches))
		}
		got := 0
		for _, b := range batches {
			var r Reader
			if err := r.Reset(b.Bytes); err != nil {
				t.Fatal(err)
			}
			if len(b.Bytes) > frame/2 || r.Header.Shard != b.Shard {
				t.Errorf("a batch of %d bytes for shard %d: its header has shard %d, want the same shard, and at "+
					"most 8 MiB",
					len(b.Bytes), b.Shard, r.Header.Shard)
			}
			if s := r.Header.Sequence; s <= last[b.Shard] || s>>partBits != h.Sequence {
				t.Errorf("shard %d: sequence %#x follows %#x", b.Shard, s, last[b.Shard])
			}
			last[b.Shard] = r.Header.Sequence
			for r.Next() != nil {
				got++
			}
			if r.Err() != nil {
				t.Error(r.Err())
			}
		}
		if got != want {
			t.Errorf("%d increments read, %d written", got, want)
		}
	}
}

// The length of a trace says where the rest of an exemplar begins. A length beyond the longest
// trace, or beyond the increment, is refused.
func TestLengthsOfTraces(t *testing.T) {
	whole := (&Exemplar{Value: 1, Time: 5, Trace: TraceOf([]byte("ab"))}).Append(nil, 0)
	digits := []byte(strings.Repeat("a", 300))
	for n := range 256 {
		var e Exemplar
		rest, err := e.Parse(append(append([]byte{byte(n)}, digits[:n]...), whole[3:]...), 0)
		if n >= 1 && n <= 32 {
			if err != nil || len(rest) > 0 || e.Trace.String() != string(digits[:n]) || e.Value != 1 || e.Time != 5 {
				t.Errorf("a trace of %d digits: read %+v, %d bytes are left, error %v", n, e, len(rest), err)
			}
		} else if err == nil {
			t.Errorf("a trace of %d digits is accepted", n)
		}
	}
	for n := range whole {
		if _, err := new(Exemplar).Parse(whole[:n], 0); err == nil {
			t.Errorf("an exemplar cut to %d of %d bytes is accepted", n, len(whole))
		}
	}
}

func TestReaderDoesNotAllocate(t *testing.T) {
	b := encode(header(), increments())
	var r Reader
	read := func() {
		if err := r.Reset(b); err != nil {
			t.Fatal(err)
		}
		for r.Next() != nil {
		}
	}
	read()
	if n := testing.AllocsPerRun(100, read); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(encode(header(), increments()))
	f.Add(encode(header(), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again Reader
		if r.Reset(b) != nil {
			return
		}
		for inc := r.Next(); inc != nil; inc = r.Next() {
			one := Begin(nil, &r.Header)
			one = inc.Append(one, r.Header.Second)
			End(one, 1)
			if err := again.Reset(one); err != nil {
				t.Fatalf("%+v: %v", r.Header, err)
			}
			copied := again.Next()
			if copied == nil || !reflect.DeepEqual(copied.Exemplar, inc.Exemplar) || again.Next() != nil || again.Err() != nil {
				t.Fatalf("%+v is read back as %+v, error %v", inc, copied, again.Err())
			}
			if x := inc.Exemplar; x != nil &&
				(!dogstatsd.IsTrace([]byte(x.Trace.String())) || math.IsNaN(x.Value) || math.IsInf(x.Value, 0) || x.Time < 1 ||
					x.Time > maxSecond*1e3) {
				t.Fatalf("the Reader accepted the exemplar %+v", x)
			}
			_, _, _ = series.ParseKey(inc.Key)
			_, _ = series.ParsePolicy(inc.Policy)
		}
	})
}

// A reader refuses a batch with an unknown flag in its header, and skips an increment with an unknown
// flag. The error names the flag. Readers that are older than up/down counters accept only 1 as the
// first byte.
func TestWhatIsNewerIsRefusedByName(t *testing.T) {
	good := increments()
	for _, c := range []struct {
		first byte
		want  string
	}{
		{0x02, "has version 2, and this program reads 1"}, {0x21, "unknown flag 0x20"}, {0x91, "unknown flag 0x80"},
	} {
		b := encode(header(), good)
		b[0] = c.first
		if err := new(Reader).Reset(b); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("first byte %#02x: error %v, want %q", c.first, err, c.want)
		}
	}

	b := encode(header(), good[:1])
	b[headerSize+len(header().Tenant)+lengthSize] |= 0x40
	var r Reader
	if err := r.Reset(b); err != nil {
		t.Fatal(err)
	}
	if r.Next() != nil || !errors.Is(r.Err(), ErrNewer) || !strings.Contains(r.Err().Error(), "flag 0x40") {
		t.Errorf("an increment with an unknown flag: error %v, want one that names flag 0x40", r.Err())
	}
}

// Only a batch with an increment of an up/down counter has the flag, so that older programs can
// read all other batches. Without the flag, such an increment is refused.
func TestTheFlagOfUpDownCounters(t *testing.T) {
	counter, upDown := increments()[0], increments()[12]
	var w Writer
	w.Begin(Header{Tenant: []byte("default"), Second: second})
	w.Add(1, &counter)
	w.Add(2, &counter)
	w.Add(2, &upDown)
	batches := w.End()
	if first := batches[0].Bytes[0]; first != version {
		t.Errorf("a batch of counters begins with %#02x, want no flag", first)
	}
	var r Reader
	if err := r.Reset(batches[1].Bytes); err != nil || !r.Header.UpDown {
		t.Fatalf("a batch with an up/down counter: header %+v, error %v", r.Header, err)
	}
	if r.Next(); r.Next() == nil {
		t.Fatal(r.Err())
	}
	batches[1].Bytes[0] = version
	if err := r.Reset(batches[1].Bytes); err != nil {
		t.Fatal(err)
	}
	if r.Next(); r.Next() != nil || r.Err() == nil {
		t.Errorf("an up/down counter without the flag is accepted: error %v", r.Err())
	}
}
