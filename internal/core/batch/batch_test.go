package batch

import (
	"reflect"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

const second = 1_763_680_000

// one increment of each kind and form.
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
		{Key: key(series.Timer), Policy: series.AppendPolicy(nil, classic), Samples: 2, Classic: []float64{1, 0, 20}, Sum: 12},
		{Key: key(series.Set), Samples: 1, Set: set},
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
	return Header{Tenant: []byte("default"), Shard: 1023, Sender: 1 << 63, Incarnation: 2, Sequence: 3, Second: second, Birth: second*1e9 + 7}
}

func TestReadBack(t *testing.T) {
	want := increments()
	var r Reader
	if err := r.Reset(encode(header(), want)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r.Header, header()) {
		t.Errorf("header %+v", r.Header)
	}
	for i := range want {
		got := r.Next()
		if got == nil {
			t.Fatalf("increment %d: %v", i, r.Err())
		}
		if len(got.Policy) == 0 {
			got.Policy = nil
		}
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
	}
	if r.Next() != nil || r.Err() != nil {
		t.Errorf("at the end: %v", r.Err())
	}
}

// A batch that was cut short says so, and never yields a wrong increment: what
// was read before the cut is what was written.
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
				t.Fatalf("cut at %d: increment %d is of %q", n, i, inc.Key)
			}
			i++
		}
		if r.Err() == nil {
			t.Fatalf("cut at %d of %d: no error", n, len(whole))
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
			if again.Next() == nil || again.Next() != nil || again.Err() != nil {
				t.Fatalf("%+v: read back: %v", inc, again.Err())
			}
			_, _, _ = series.ParseKey(inc.Key)
			_, _ = series.ParsePolicy(inc.Policy)
		}
	})
}
