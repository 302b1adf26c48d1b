package changes_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/freshet-io/freshet/internal/core/changes"
)

// A mark knows the oldest change after it, whatever came before it, and to the second.
func TestSince(t *testing.T) {
	l := changes.New()
	l.Note(5_000)
	first := l.Mark()
	if got := l.Since(first); got != math.MaxInt64 {
		t.Errorf("nothing changed since the first mark, and it says %d", got)
	}
	l.Note(70_000)
	l.Note(60_500)
	second := l.Mark()
	l.Note(90_100)
	for _, c := range []struct {
		why  string
		of   changes.Mark
		want int64
	}{
		{"the older of two changes, to the second", first, 60_000},
		{"a change that no mark has passed is exact", second, 90_100},
		{"a mark of another log says nothing", changes.New().Mark(), changes.All},
		{"so does no mark", changes.Mark{}, changes.All},
	} {
		if got := l.Since(c.of); got != c.want {
			t.Errorf("%s: %d, want %d", c.why, got, c.want)
		}
	}
	var none *changes.Log
	if got := none.Since(none.Mark()); got != math.MaxInt64 {
		t.Errorf("data that do not exist have changed at %d", got)
	}
	if got := none.Since(first); got != changes.All {
		t.Errorf("data that do not exist any more have changed at %d", got)
	}
	if got := l.Since(none.Mark()); got != changes.All {
		t.Errorf("data that did not exist have changed at %d", got)
	}
	l.Note(changes.All)
	if got := l.Since(second); got != changes.All {
		t.Errorf("everything has changed, and the oldest change is at %d", got)
	}
}

// A list of all notes says the same: never less than a second older, as long as fewer periods pass than are kept, and
// never younger.
func TestLikeAList(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		l := changes.New()
		var notes []int64
		type mark struct {
			changes.Mark
			after int // how many notes came before
		}
		var marks []mark
		for i := range int64(20_000) {
			switch r.IntN(10) {
			default:
				at := i * 100
				if r.IntN(20) == 0 {
					at -= r.Int64N(100_000) // late
				}
				l.Note(at)
				notes = append(notes, at)
			case 0, 1:
				marks = append(marks, mark{l.Mark(), len(notes)})
			}
		}
		for n, m := range marks {
			want := int64(math.MaxInt64)
			for _, at := range notes[m.after:] {
				want = min(want, at)
			}
			got := l.Since(m.Mark)
			if got > want || want != math.MaxInt64 && got < want-1000 {
				t.Fatalf("seed %d: since mark %d the oldest change is at %d, want %d", seed, n, got, want)
			}
		}
	}
}

// However many periods pass, the log stays small, and what it forgets makes old marks older only.
func TestBound(t *testing.T) {
	l := changes.New()
	before := l.Mark()
	var last changes.Mark
	for i := range int64(100_000) {
		l.Note(1_000 * i)
		last = l.Mark()
	}
	l.Note(99_999_999)
	if got := l.Since(before); got != 0 {
		t.Errorf("the oldest change of all is at %d, want 0", got)
	}
	if got := l.Since(last); got != 99_999_999 {
		t.Errorf("the oldest change since the last mark is at %d", got)
	}
	if got := testing.AllocsPerRun(100, func() { l.Note(99_999_999_999) }); got != 0 {
		t.Errorf("a note of a newer sample allocates %v times", got)
	}
}
