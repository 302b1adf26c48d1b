package outcome

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func example() *Outcome {
	o := &Outcome{
		Written: Counts{1, 2, 300, 4}, Dropped: Counts{5, 6, 7, 8}, NotKept: math.MaxInt,
		First: Example{`up{job="ä"}`, "the cause"},
	}
	for i := range o.Refused {
		o.Refused[i] = Counts{i, 2 * i, 3 * i, 400 * i}
	}
	return o
}

func TestOutcomesAreReadAsWritten(t *testing.T) {
	for _, o := range []*Outcome{{}, example()} {
		var read Outcome
		read.NotKept = 9 // Parse overwrites everything
		if err := read.Parse(o.Append(nil)); err != nil || read != *o {
			t.Errorf("read %+v, want %+v; error %v", read, *o, err)
		}
	}
}

// An older program writes fewer reasons. A newer program may write more: Parse must not ignore
// these.
func TestOutcomesOfOtherVersions(t *testing.T) {
	b := (&Outcome{NotKept: 7}).Append(nil)
	const reasons = 1 + 2*4 // the offset of the number of reasons
	older := append(append([]byte(nil), b[:reasons]...), byte(NumReasons-1))
	older = append(older, b[reasons+1+4:]...)
	var o Outcome
	if err := o.Parse(older); err != nil || o.NotKept != 7 {
		t.Errorf("the outcome of an older program: %+v, want NotKept 7; error %v", o, err)
	}
	for name, at := range map[string]int{"version": 0, "reasons": reasons} {
		newer := append([]byte(nil), b...)
		newer[at]++
		if err := o.Parse(newer); !errors.Is(err, ErrNewer) {
			t.Errorf("%s raised by one: got %v, want ErrNewer", name, err)
		}
	}
}

func TestLongTextsAreCut(t *testing.T) {
	long := Outcome{First: Example{"up", strings.Repeat("x", 2*maxText)}}
	var o Outcome
	if err := o.Parse(long.Append(nil)); err != nil || len(o.First.Cause) != maxText {
		t.Errorf("the cause has %d bytes, want %d; error %v", len(o.First.Cause), maxText, err)
	}
}

// If Parse accepts bytes, they are the only encoding of their outcome. Bytes of an older program are the
// exception: they may lack reasons.
func FuzzOutcome(f *testing.F) {
	f.Add((&Outcome{}).Append(nil))
	f.Add(example().Append(nil))
	f.Add(example().Append(nil)[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		var o Outcome
		if o.Parse(b) != nil {
			return
		}
		var again Outcome
		if err := again.Parse(o.Append(nil)); err != nil || again != o {
			t.Errorf("%x: parsed %+v, reparsed %+v; error %v", b, o, again, err)
		}
		if canonical := o.Append(nil); len(canonical) == len(b) && string(canonical) != string(b) {
			t.Errorf("%x is not the encoding of %+v", b, o)
		}
	})
}
